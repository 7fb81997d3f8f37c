"""What code that nobody trusts can reach: namespaces, a read-only view of the files, no capabilities.

Used in forks of `passbench.workers.fork_server`. `enter` in the process that will fork the child, `confine` in the
child. Linux on x86-64 and arm64 alone; where the kernel or a container refuses, OSError says what, and the run's record
says so.
"""

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterable
from pathlib import Path

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = (
    0x00020000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 2, 4, 8, 4096, 16384, 1 << 18
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_SYS_MOUNT_SETATTR = 442  # the same number on every architecture
_MOUNT_ATTR_RDONLY = 1
_PR_SET_PDEATHSIG, _PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_SET_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 23, 24, 36, 38
_CAPABILITIES = 64
_CAPABILITY_VERSION_3 = 0x20080522
_SIGKILL = 9

_DEVICES = ("null", "zero", "full", "random", "urandom")
_SHM_OPTIONS = b"size=1g"
_PROC_READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "driver")

_libc = ctypes.CDLL(None, use_errno=True)


def enter() -> None:
    """Move this process's next child into namespaces of its own: files, processes, network, IPC, host name.

    Root does without a user namespace, into which CUDA IPC does not reach. Raises OSError.
    """
    flags = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | _NEWNET
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        _check(_libc.unshare(flags), "unshare")
        return
    _check(_libc.unshare(flags | _NEWUSER), "unshare")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def confine(stage: Path, writable: Iterable[Path]) -> None:
    """In the new namespaces: all files read-only but for the directories `writable`; few devices; `/proc` of this
    process tree alone. `stage` is an empty directory to build `/dev` in. Raises OSError."""
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    writable = list(writable)
    open_again = [*writable, *_build_dev(stage)]
    for directory in writable:
        _mount(directory, directory, None, _MS_BIND)
    _set_read_only("/", True, _AT_RECURSIVE)
    for directory in open_again:
        _set_read_only(directory, False)
    _mount(stage, "/dev", None, _MS_BIND | _MS_REC)
    _mount_proc()


def _build_dev(stage: Path) -> list[Path]:
    """A `/dev` with the harmless devices and NVIDIA's; not with disks, which root could write to. Returns what in it
    must stay writable."""
    dev = Path("/dev")
    _mount("tmpfs", stage, "tmpfs", _MS_NOSUID)
    for device in [*(dev / name for name in _DEVICES), *sorted(dev.glob("nvidia*"))]:
        if not device.exists():
            continue
        place = stage / device.name
        if device.is_dir():
            place.mkdir()
        else:
            place.touch()
        _mount(device, place, None, _MS_BIND | _MS_REC)
    for name, target in {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
        (stage / name).symlink_to(target)
    writable = [stage / "shm"]
    writable[0].mkdir()
    _mount("tmpfs", writable[0], "tmpfs", _MS_NOSUID | _MS_NODEV, _SHM_OPTIONS)
    for shared in Path("/dev/shm").glob("cuda.shm.*"):  # CUDA IPC finds the exporting process through these
        place = stage / "shm" / shared.name
        place.touch()
        _mount(shared, place, None, _MS_BIND)
        writable.append(place)
    return writable


def _mount_proc() -> None:
    """CUDA does not start with `/proc` read-only; what root could change the machine with is."""
    _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    for name in _PROC_READ_ONLY:
        path = Path("/proc") / name
        if path.exists():
            _mount(path, path, None, _MS_BIND | _MS_REC)
            _set_read_only(path, True)


def drop_privileges() -> None:
    """Give up all capabilities for good, those of a program started later too. Raises OSError."""
    for capability in range(_CAPABILITIES):
        if _libc.prctl(_PR_CAPBSET_READ, capability, 0, 0, 0) != 1:
            continue
        failed = _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
        if failed and ctypes.get_errno() != errno.EPERM:  # refused to those who have none to give up anyway
            raise OSError(ctypes.get_errno(), f"drop capability {capability}")
    _check(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(header, nothing), "capset")


def die_with_parent() -> None:
    """Have the kernel kill this process when the one that forked it ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0), "pdeathsig")


def die_first() -> None:
    """Have the kernel end this process and its children before others when the machine runs out of memory."""
    with contextlib.suppress(OSError):  # not where /proc is read-only
        Path("/proc/self/oom_score_adj").write_text("1000")


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end."""
    _check(_libc.prctl(_PR_SET_SUBREAPER, 1, 0, 0, 0), "subreaper")


def _mount(
    source: str | Path | None, target: str | Path, kind: str | None, flags: int, options: bytes | None = None
) -> None:
    def raw(x: str | Path | None) -> bytes | None:
        return None if x is None else os.fsencode(x)

    done = _libc.mount(raw(source), raw(target), raw(kind), ctypes.c_ulong(flags), options)
    _check(done, f"mount {target}")


class _MountAttr(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64) for n in ("attr_set", "attr_clr", "propagation", "userns_fd")]


def _set_read_only(target: str | Path, on: bool, flags: int = 0) -> None:
    attr = _MountAttr(_MOUNT_ATTR_RDONLY, 0) if on else _MountAttr(0, _MOUNT_ATTR_RDONLY)
    done = _libc.syscall(
        _SYS_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), flags, ctypes.byref(attr), ctypes.sizeof(attr)
    )
    _check(done, f"mount_setattr {target}")


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")

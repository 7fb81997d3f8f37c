"""What a worker and all that it has started take of the machine.

Its supervisor looks, and ends a worker that takes more than it may.
"""

import contextlib
import math
import os
import time
from pathlib import Path

from passbench.ipc.spawn import Spawn

_KIB = 1024
_SHARED_BYTES = 4 << 30
"""Shared memory that a worker may map beside its own: the inputs and outputs of its calls."""

_MOST_THREADS = 4096
_MOST_FILES = 200_000
_COUNT_SECONDS = 30.0


def excess(pid: int, born_with: int, spawn: Spawn) -> str:
    """What a worker and its descendants take too much of, as text; empty if of nothing. Of the memory that each has
    filled, `born_with` bytes are common to all forks of the zygote, and do not count."""
    processes = family(pid)
    if len(processes) > spawn.processes:
        return f"more than {spawn.processes} processes"
    taken = [usage(process) for process in processes]
    if sum(threads for _, _, threads in taken) > _MOST_THREADS:
        return f"more than {_MOST_THREADS} threads"
    own = sum(max(0, filled - born_with) for filled, _, _ in taken)
    shared = max((mapped for _, mapped, _ in taken), default=0)
    if own + max(0, shared - _SHARED_BYTES) > spawn.resident_bytes:
        return f"more than {spawn.resident_bytes / 2**30:.1f} GiB of the machine's memory"
    return ""


class DiskUse:
    """What a worker's directory holds. Its files are counted at the first look, and again once the file system has
    lost as much room as the worker may still take, or half a minute later: to count thousands of files takes a tenth of
    a second, and baselines share a directory of compiled code."""

    def __init__(self, spawn: Spawn) -> None:
        self._box, self._most_bytes = spawn.box, spawn.disk_bytes
        self._count_at = -math.inf
        self._bytes = self._files = 0  # that were there when they were counted
        self._free = (0, 0)  # bytes and files that the file system had room for then

    def excess(self) -> str:
        """What the directory holds too much of, as text; empty if of nothing."""
        now, free = time.monotonic(), self._room_left()
        most_bytes = self._bytes + max(0, self._free[0] - free[0])
        most_files = self._files + max(0, self._free[1] - free[1])
        if now < self._count_at and most_bytes <= self._most_bytes and most_files <= _MOST_FILES:
            return ""
        self._count_at, self._free = now + _COUNT_SECONDS, free
        return self._count()

    def _room_left(self) -> tuple[int, int]:
        with contextlib.suppress(FileNotFoundError):  # removed by the parent, which is about to end the worker
            there = os.statvfs(self._box)
            return there.f_bavail * there.f_frsize, there.f_favail
        return self._free

    def _count(self) -> str:
        self._bytes = self._files = 0
        for directory, _, names in os.walk(self._box):
            for name in names:
                self._files += 1
                with contextlib.suppress(OSError):  # gone meanwhile
                    self._bytes += os.lstat(os.path.join(directory, name)).st_blocks * 512
            if self._files > _MOST_FILES:
                return f"more than {_MOST_FILES} files"
            if self._bytes > self._most_bytes:
                return f"more than {self._most_bytes / 2**30:.1f} GiB on disk"
        return ""


def at_rest(pid: int) -> bool:
    """Whether a worker and all its descendants have been stopped, so that nothing in them runs until one outside
    continues them. Of a process that is gone, False."""
    return all(_state(process) == "T" for process in family(pid))


def family(pid: int) -> list[int]:
    """A worker and its descendants, by their numbers in the /proc that is mounted. In namespaces of its own, once the
    worker has made them its own, that is one where this process is not, and no stranger either."""
    if not os.path.exists("/proc/self"):
        return _listed()
    parents = {p: parent(p) for p in _listed()}
    found = [pid]
    for one in found:  # grows meanwhile
        found += [p for p, above in parents.items() if above == one]
    return found


def parent(pid: int) -> int | None:
    """The number of a process's parent; None if the process is gone."""
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1])
    return None


def _state(pid: int) -> str:
    """The kernel's letter for what a process does; empty for one that is gone."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()[0]
    return ""


def filled_bytes(pid: int | str) -> int:
    """Memory of a process's own that is resident, and backed by no file; of a process that is gone, none."""
    return usage(pid)[0]


def usage(pid: int | str) -> tuple[int, int, int]:
    """Resident bytes of a process's own and of shared memory, and its threads; zeros for a process that is gone."""
    numbers = dict.fromkeys(("RssAnon", "RssShmem", "Threads"), 0)
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text("utf-8", "replace").splitlines():
            name, _, value = line.partition(":")
            if name in numbers:
                numbers[name] = int(value.split()[0])
    return numbers["RssAnon"] * _KIB, numbers["RssShmem"] * _KIB, numbers["Threads"]


def _listed() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]

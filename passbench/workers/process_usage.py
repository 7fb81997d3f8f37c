"""What a worker and all that it has started take of the machine.

Its supervisor looks, and ends a worker that takes more than it may.
"""

import contextlib
import os
from pathlib import Path

from passbench.ipc.spawn import Spawn

_KIB = 1024
_SHARED_BYTES = 4 << 30
"""Shared memory that a worker may map beside its own: the inputs and outputs of its calls."""

_MOST_THREADS = 4096
_MOST_FILES = 200_000


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


def excess_on_disk(spawn: Spawn) -> str:
    """What a worker's directory holds too much of, as text; empty if of nothing. Slow if there are many files."""
    files = size = 0
    for directory, _, names in os.walk(spawn.box):
        for name in names:
            files += 1
            with contextlib.suppress(OSError):  # gone meanwhile
                size += os.lstat(os.path.join(directory, name)).st_blocks * 512
        if files > _MOST_FILES:
            return f"more than {_MOST_FILES} files"
        if size > spawn.disk_bytes:
            return f"more than {spawn.disk_bytes / 2**30:.1f} GiB on disk"
    return ""


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

"""What a worker and all processes that it started use, as Linux tells it in /proc, against the limits of a pool.

A process may end while it is looked at; it uses nothing then.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

_MOST_FILES = 100_000
"""Files of a scratch directory that are looked at."""


class Limits(Protocol):
    """Processes at a time, MiB of memory and MiB written, each of a worker with all that it started."""

    processes: int
    memory_mb: int
    disk_mb: int


def over(pid: int, scratch: Path, limits: Limits, use: bool) -> tuple[str, int] | None:
    """The first limit that the tree below `pid` is over: what that end is called, and the limit.

    Memory and disk are looked at only with `use`, for they take longer.
    """
    pids = tree(pid)
    if len(pids) > limits.processes:
        return "processes", limits.processes
    if use and memory_bytes(pids, limits.memory_mb << 20) > limits.memory_mb << 20:
        return "memory", limits.memory_mb
    if use and max(written_bytes(pids), held_bytes(scratch)) > limits.disk_mb << 20:
        return "disk", limits.disk_mb
    return None


def tree(pid: int) -> list[int]:
    """A process and all below it, parents first."""
    pids = [pid]
    for one in pids:
        pids += _children(one)
    return pids


def memory_bytes(pids: list[int], limit: int) -> int:
    """Memory of processes that is neither a file's nor the server's. Where all that is resident of them is not over
    `limit`, that is the answer, which costs less to find out."""
    most = sum(_resident(pid) for pid in pids)
    return most if most <= limit else sum(_own(pid) for pid in pids)


def written_bytes(pids: list[int]) -> int:
    """What processes, and those that they waited for, have written to disks and not taken back."""
    return sum(_written(pid) for pid in pids)


def held_bytes(directory: Path) -> int:
    """What the files below a directory take, also where its disk is memory."""
    total = 0
    for number, path in enumerate(_files(directory)):
        with contextlib.suppress(FileNotFoundError):
            total += path.lstat().st_blocks * 512
        if number == _MOST_FILES:
            break
    return total


def _files(directory: Path) -> Iterator[Path]:
    return (Path(at, name) for at, _, names in os.walk(directory) for name in names)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def _resident(pid: int) -> int:
    """Resident memory of a process that are no file's; those that it shares with others in full."""
    fields = _fields(f"/proc/{pid}/status")
    return sum(int(fields.get(name, "0").split()[0]) for name in ("RssAnon", "RssShmem")) * 1024


def _own(pid: int) -> int:
    """What a process alone has written to, or its share of shared memory, whichever is more: what it has in common with
    the server that it is a fork of does not count."""
    fields = _fields(f"/proc/{pid}/smaps_rollup")
    return max(int(fields.get(name, "0").split()[0]) for name in ("Private_Dirty", "Pss_Shmem")) * 1024


def _written(pid: int) -> int:
    fields = _fields(f"/proc/{pid}/io")
    return int(fields.get("write_bytes", 0)) - int(fields.get("cancelled_write_bytes", 0))


def _fields(path: str) -> dict[str, str]:
    """`Name: value` lines; none of a process that has ended, or where this kernel does not tell."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
        return dict(line.split(":", 1) for line in Path(path).read_text().splitlines() if ":" in line)
    return {}

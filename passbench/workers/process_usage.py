"""Memory and processes that a worker takes, from /proc: its supervisor looks, for limits that hold for all of them."""

import contextlib
import os
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def excess(pid: int, shared: int, most_bytes: int, most_processes: int) -> str:
    """What a worker and its descendants have more of than they may; empty if nothing. Of the memory that each has
    filled, `shared` bytes are common to all forks of the zygote, and do not count."""
    processes = family(pid)
    if len(processes) > most_processes:
        return f"more than {most_processes} processes"
    if sum(max(0, filled_bytes(p) - shared) for p in processes) > most_bytes:
        return f"more than {most_bytes / 2**30:.1f} GiB of the machine's memory"
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
    """Resident memory that no file backs; of a process that is gone, none."""
    with contextlib.suppress(OSError):
        _, resident, backed, *_ = map(int, Path(f"/proc/{pid}/statm").read_text().split())
        return (resident - backed) * _PAGE
    return 0


def _listed() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]

"""Processes of this machine, from /proc: what descends from one, what it has used, and whether it has ended."""

import os
import time
from pathlib import Path


def below(process: int) -> list[int]:
    """All processes that descend from one, parents first."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(status.parent.name)] = int(fields[1])
    found = [process]
    for one in found:
        found += [pid for pid, parent in parents.items() if parent == one]
    return found[1:]


def wait_for_end(processes: list[int], limit: float) -> list[int]:
    """Those of the processes that are still there after `limit` seconds; zombies have ended."""
    deadline = time.monotonic() + limit
    while (left := [pid for pid in processes if alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def processor_seconds(process: int) -> float:
    """What a process has used of a processor since it was forked."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def alive(process: int) -> bool:
    """Whether a process runs."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

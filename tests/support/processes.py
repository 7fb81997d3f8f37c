"""Processes of this machine, from /proc: what descends from one or began in a directory, what it has used, and whether
it has ended."""

import os
import time
from contextlib import suppress
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


def begun_in(directories: list[str]) -> list[int]:
    """All processes that began with one of these directories in their environment, or work in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            marks = os.fsdecode((process / "environ").read_bytes()) + os.readlink(process / "cwd")
            if any(directory in marks for directory in directories):
                found.append(int(process.name))
    return found


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

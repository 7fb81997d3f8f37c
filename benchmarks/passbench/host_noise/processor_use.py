"""Who uses the processor while something is timed: seconds of each process between two looks, and of the machine."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_LETTERS = 60


class Process(NamedTuple):
    """`seconds` of processor so far; `threads` tells a worker, which has CUDA's, from its supervisor."""

    parent: int
    state: str
    threads: int
    seconds: float
    command: str


class Look(NamedTuple):
    """Every process by its id, and the machine's seconds by kind."""

    processes: Mapping[int, Process]
    machine: Mapping[str, float]


def look() -> Look:
    """What /proc says now."""
    found = {int(name): one for name in os.listdir("/proc") if name.isdigit() and (one := _process(name)) is not None}
    numbers = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    machine = {kind: int(number) / _TICKS for kind, number in zip(_KINDS, numbers, strict=False)}
    return Look(found, machine)


def between(before: Look, after: Look, most: int = 12) -> str:
    """The machine's seconds by kind and the busiest processes, a line each. What ended meanwhile is in the machine's
    alone."""
    spent = {kind: after.machine[kind] - before.machine[kind] for kind in after.machine}
    used = {
        pid: one.seconds - (before.processes[pid].seconds if pid in before.processes else 0.0)
        for pid, one in after.processes.items()
    }
    busiest = sorted(used, key=used.get, reverse=True)[:most]
    lines = [
        "processor seconds: " + ", ".join(f"{kind} {value:.1f}" for kind, value in spent.items() if value >= 0.05),
        f"of {len(used)} processes {sum(used.values()):.1f}; the busiest:",
    ]
    for pid in busiest:
        one = after.processes[pid]
        lines.append(f"{used[pid]:8.1f}  {pid}, of {one.parent}, {one.state}, {one.threads} threads: {one.command}")
    return "\n".join(lines)


def _process(pid: str) -> Process | None:
    with contextlib.suppress(OSError):  # it has ended
        name, _, rest = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")
        state, parent, *numbers = rest.split()
        command = Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace").replace("\0", " ").strip()
        seconds = (int(numbers[9]) + int(numbers[10])) / _TICKS
        shown = " ".join((command or name.partition("(")[2]).split())[-_LETTERS:]
        return Process(int(parent), state, int(numbers[15]), seconds, shown)
    return None

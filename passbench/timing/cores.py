"""Which processor cores a timed benchmark runs on."""

import contextlib
import functools
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch

_LEAST = 4
_LEAST_WINDOW, _MOST_WINDOW = 8, 16  # cores that a GPU's benchmark chooses among, every second of them
_FIRST = 3
_PROBE = 10_000  # additions: about a third of a millisecond
_PROBES = 3  # of each core, in turn: what disturbs it comes and goes
SLOWER = 1.25
"""A core is slow where a piece of work takes so many times as long as on a quiet one. A thread of another machine
on the same core makes it 1.5 to 2 times as long, for some 50 ms or for seconds (benchmarks/passbench/h200_cores)."""


@dataclass(frozen=True)
class Cores:
    """`children`: eager's and the candidate's worker, which never run at the same time, share one core, so that
    neither is on a faster one; `parent`: waits without sleeping on another. `others` can take the children's place.
    `quiet_us`: what a fixed piece of work takes on a core that nothing disturbs."""

    children: set[int]
    parent: set[int]
    others: tuple[int, ...] = ()
    quiet_us: float = 0.0

    def elsewhere(self) -> Self:
        """The children on the first of the other cores that is not slow now, or on the least slow one."""
        took: dict[int, float] = {}
        for core in self.others:
            took[core] = self._look(core)
            if not self.slow(took[core]):
                break
        fastest = min(took, key=took.__getitem__)
        return replace(self, children={fastest}, others=(*(n for n in self.others if n != fastest), *self.children))

    def work_us(self) -> float:
        """What the piece of work takes on the children's core now. They must not be at work themselves."""
        (child,) = self.children
        return self._look(child)

    def slow(self, work_us: float) -> bool:
        """Whether a core is slow on which the piece of work takes so long."""
        return work_us > SLOWER * self.quiet_us

    def _look(self, core: int) -> float:
        """Microseconds of the piece of work, done once more where it is slow: a core that slept needs a moment."""
        took = us_on(core)
        return min(took, us_on(core)) if self.slow(took) else took


def choose(device: torch.device) -> Cores | None:
    """The quietest cores for a GPU's benchmark, others for every GPU; None where there are too few, or no GPU.

    Candidates are not two threads of one core, as far as the kernel knows cores, nor of the first core, which serves
    most interrupts, if two others are left. What else runs on a virtual machine's cores is not ours to see, so that
    only a probe tells.
    """
    cores = sorted(os.sched_getaffinity(0))
    if device.type != "cuda" or len(cores) < _LEAST:
        return None
    candidates = window(device)[::2]
    apart = [one for one in candidates if _first_thread(one) > 0]
    took = _looked_at(apart if len(apart) > 1 else candidates)
    children, parent, *others = sorted(took, key=lambda core: sum(took[core]))
    return Cores({children}, {parent}, tuple(others), min(map(min, took.values())))


def window(device: torch.device) -> list[int]:
    """The cores that are a GPU's benchmark's alone, where others can be kept off them: every second one is a candidate
    of `choose`, the others may be second threads of the same cores."""
    cores = sorted(os.sched_getaffinity(0), key=lambda one: (_first_thread(one), one))
    size = max(_LEAST_WINDOW, min(_MOST_WINDOW, len(cores) // max(torch.cuda.device_count(), 1)))
    first = size * (device.index or 0) + _FIRST
    return [cores[(first + step) % len(cores)] for step in range(min(size, len(cores)))]


@functools.cache
def _first_thread(processor: int) -> int:
    """The first thread of a processor's core; the processor itself where the kernel does not say."""
    siblings = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    return int(re.split("[,-]", siblings.read_text())[0]) if siblings.exists() else processor


def _looked_at(cores: Sequence[int]) -> dict[int, list[float]]:
    """Microseconds of the piece of work on each core, some times."""
    took: dict[int, list[float]] = {core: [] for core in cores}
    for _ in range(_PROBES):
        for core in cores:
            took[core].append(us_on(core))
    return took


def us_on(core: int) -> float:
    """Microseconds of the piece of work on a core."""
    with on_cores({core}):
        return _us_of_work()


def _us_of_work() -> float:
    total = 0
    begin = time.perf_counter()
    for number in range(_PROBE):
        total += number
    return 1e6 * (time.perf_counter() - begin)


def host_us() -> float:
    """Microseconds of a fixed piece of work in Python, the least of three, on the core at hand: how fast the host is
    now. Other virtual machines of the host slow it down for minutes, and eager's calls with it."""
    return min(_us_of_work() for _ in range(_PROBES))


@contextlib.contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Let this thread run on these cores alone while the context lasts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

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


@dataclass(frozen=True)
class Cores:
    """`children`: eager's and the candidate's worker, which never run at the same time, share one core, so that
    neither is on a faster one; `parent`: waits without sleeping on another. `others` can take the children's place."""

    children: set[int]
    parent: set[int]
    others: tuple[int, ...] = ()

    def elsewhere(self) -> Self:
        """The children on the quietest of the other cores."""
        quietest, *rest = _by_quiet(self.others)
        return replace(self, children={quietest}, others=(*rest, *self.children))


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
    children, parent, *others = _by_quiet(apart if len(apart) > 1 else candidates)
    return Cores({children}, {parent}, tuple(others))


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


def _by_quiet(cores: Sequence[int]) -> list[int]:
    """Cores, the least disturbed first."""
    seconds = dict.fromkeys(cores, 0.0)
    for _ in range(_PROBES):
        for core in cores:
            seconds[core] += _seconds_on(core)
    return sorted(cores, key=seconds.get)


def _seconds_on(core: int) -> float:
    """How long a fixed piece of work takes on a core."""
    with on_cores({core}):
        return _seconds_of_work()


def _seconds_of_work() -> float:
    total = 0
    begin = time.perf_counter()
    for number in range(_PROBE):
        total += number
    return time.perf_counter() - begin


def host_us() -> float:
    """Microseconds of a fixed piece of work in Python, the least of three, on the core at hand: how fast the host is
    now. Other virtual machines of the host slow it down for minutes, and eager's calls with it."""
    return 1e6 * min(_seconds_of_work() for _ in range(_PROBES))


@contextlib.contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Let this thread run on these cores alone while the context lasts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

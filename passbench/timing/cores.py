"""Which processor cores a timed benchmark runs on."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch

_LEAST = 4
_WINDOW = 8  # cores that a GPU's benchmark chooses among, every second of them
_FIRST = 3
_PROBE = 30_000  # additions: about a millisecond


@dataclass(frozen=True)
class Cores:
    """`children`: eager's and the candidate's worker, which never run at the same time, share one core, so that
    neither is on a faster one; `parent`: waits without sleeping on another."""

    children: set[int]
    parent: set[int]


def choose(device: torch.device) -> Cores | None:
    """The quietest cores for a GPU's benchmark, others for every GPU; None where there are too few, or no GPU.

    Candidates are not two threads of one core as they are usually numbered, nor of the first core, which serves most
    interrupts. What else runs on a virtual machine's cores is not ours to see, so that only a probe tells.
    """
    cores = sorted(os.sched_getaffinity(0))
    if device.type != "cuda" or len(cores) < _LEAST:
        return None
    first = _WINDOW * (device.index or 0) + _FIRST
    window = [cores[(first + step) % len(cores)] for step in range(0, min(_WINDOW, len(cores)), 2)]
    quietest = sorted(window, key=_seconds_on)
    return Cores({quietest[0]}, {quietest[1]})


def _seconds_on(core: int) -> float:
    """How long a fixed piece of work takes on a core."""
    with on_cores({core}):
        total = 0
        begin = time.perf_counter()
        for number in range(_PROBE):
            total += number
        return time.perf_counter() - begin


@contextlib.contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """Let this thread run on these cores alone while the context lasts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

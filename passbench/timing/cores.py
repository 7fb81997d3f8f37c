"""Which processor cores a timed benchmark runs on."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import torch

_LEAST = 4


@dataclass(frozen=True)
class Cores:
    """`children`: eager's and the candidate's worker, which never run at the same time, share one core, so that
    neither is on a faster one; `parent`: waits without sleeping on another."""

    children: set[int]
    parent: set[int]


def choose(device: torch.device) -> Cores | None:
    """Cores for a GPU's benchmark, others for every GPU; not two threads of one core as they are usually numbered.
    None where there are too few, or no GPU."""
    cores = sorted(os.sched_getaffinity(0))
    if device.type != "cuda" or len(cores) < _LEAST:
        return None
    first = 4 * (device.index or 0) + 1
    return Cores({cores[first % len(cores)]}, {cores[(first + 2) % len(cores)]})


@contextlib.contextmanager
def pinned(cores: Cores | None) -> Iterator[None]:
    """Let this thread run on the parent's core while the context lasts."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores.parent)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)

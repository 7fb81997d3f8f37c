"""Which processor cores a timed benchmark runs on."""

import contextlib
import functools
import hashlib
import os
import re
import threading
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
_SLOWER = 1.15
"""A core is disturbed where a piece of work takes so many times as long as on the quietest one. A second thread of the
same core, or another machine's, makes it 1.3 to 2 times as long."""
_BLOCK = bytes(2 << 20)  # to hash it takes 2 ms, without Python's lock


@dataclass(frozen=True)
class Cores:
    """`children`: eager's and the candidate's worker, which never run at the same time, share one core, so that
    neither is on a faster one; `parent`: waits without sleeping on another. `others` can take the children's place.
    `quiet_us`: what a fixed piece of work takes on the quietest core."""

    children: set[int]
    parent: set[int]
    others: tuple[int, ...] = ()
    quiet_us: float = 0.0

    def elsewhere(self) -> Self:
        """The children on the quietest of the other cores that the parent's does not disturb."""
        (parent,) = self.parent
        quietest, *rest = _undisturbing(parent, list(_by_quiet(self.others)))
        return replace(self, children={quietest}, others=(*rest, *self.children))

    def work_us(self) -> float:
        """What the piece of work takes on the children's core now. They must not be at work themselves."""
        (child,) = self.children
        return least_us(child)

    def disturbed(self, work_us: float) -> bool:
        """Whether a core is slow on which the piece of work takes so long."""
        return work_us > _SLOWER * self.quiet_us


def choose(device: torch.device) -> Cores | None:
    """The quietest cores for a GPU's benchmark, others for every GPU; None where there are too few, or no GPU.

    Candidates are not two threads of one core, as far as the kernel knows cores, nor of the first core, which serves
    most interrupts, if two others are left. What else runs on a virtual machine's cores is not ours to see, nor
    which of them are threads of one core, so that only probes tell.
    """
    cores = sorted(os.sched_getaffinity(0))
    if device.type != "cuda" or len(cores) < _LEAST:
        return None
    candidates = window(device)[::2]
    apart = [one for one in candidates if _first_thread(one) > 0]
    took = _by_quiet(apart if len(apart) > 1 else candidates)
    (children, quiet_us), *_ = took.items()
    parent, *others = _undisturbing(children, list(took)[1:])
    return Cores({children}, {parent}, tuple(others), quiet_us)


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


def _by_quiet(cores: Sequence[int]) -> dict[int, float]:
    """Cores, the least disturbed first, and the microseconds of the piece of work on each."""
    took = dict.fromkeys(cores, 0.0)
    for _ in range(_PROBES):
        for core in cores:
            took[core] += _us_on(core) / _PROBES
    return dict(sorted(took.items(), key=lambda one: one[1]))


def _undisturbing(core: int, others: Sequence[int]) -> list[int]:
    """The other cores, the first of them one that leaves `core` as fast as it is if it is busy itself; the least
    disturbing one where all of them slow it down."""
    quiet_us, took = least_us(core), {}
    for other in others:
        took[other] = _us_beside(core, other)
        if took[other] <= _SLOWER * quiet_us:
            break
    first = min(took, key=took.__getitem__)
    return [first, *(other for other in others if other != first)]


def _us_on(core: int) -> float:
    """Microseconds of the piece of work on a core."""
    with on_cores({core}):
        return _us_of_work()


def least_us(core: int) -> float:
    """Microseconds of the piece of work on a core, the least of two: a core that slept needs a moment."""
    return min(_us_on(core) for _ in range(2))


def _us_beside(core: int, busy: int) -> float:
    """The same while another core is busy, the least of two."""
    began = threading.Event()

    def compute() -> None:
        os.sched_setaffinity(0, {busy})  # this thread's
        began.set()
        hashlib.blake2b(_BLOCK)

    thread = threading.Thread(target=compute)
    with on_cores({core}):
        thread.start()
        began.wait()
        took = min(_us_of_work() for _ in range(2))
        thread.join()
    return took


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

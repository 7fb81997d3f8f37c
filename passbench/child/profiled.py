"""Recording what the device runs, in a process that is timed as well.

A process to which CUPTI is attached pays for each launch and each kernel: on an H200 3 us of the host for a launch, and
a fifth of a small kernel's time, also long after the last recording (benchmarks/passbench/h200_profiler). So torch is
told to detach CUPTI whenever a recording ends, by `TEARDOWN_CUPTI` in a worker's environment.

A thread of torch's detaches it, when some later call of CUDA returns. In one of eight recordings it is too late for the
first such call (benchmarks/passbench/h200_launch_failure). CUPTI was detached in the middle of timed calls then, and
one of a hundred trials of a pass whose launches are a CUDA graph ended with "unspecified launch failure". So a
recording is over when that thread has ended.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

_WAIT_SECONDS = 10.0
"""A thread that detaches CUPTI has ended within 5 ms on an H200."""


@contextmanager
def profiled() -> Iterator[torch.profiler.profile]:
    """Record kernels, copies and fills while the context lasts; a GPU is needed. CUPTI is detached behind it."""
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
    profiler.start()
    try:
        yield profiler
    finally:
        before = threads()
        profiler.stop()
        await_end_of(threads() - before, torch.cuda.synchronize)


def threads() -> set[str]:
    """The numbers of this process's threads, those that Python does not know among them."""
    return set(os.listdir("/proc/self/task"))


def await_end_of(some: set[str], call: Callable[[], None], seconds: float = _WAIT_SECONDS) -> None:
    """Make calls of CUDA, one at least, until threads have ended. Raises RuntimeError where they do not."""
    call()
    end = time.monotonic() + seconds
    while some & threads():
        if time.monotonic() > end:
            raise RuntimeError(f"CUPTI was not detached within {seconds:.0f} s of a recording's end")
        time.sleep(0.0001)
        call()

"""Recording what the device runs, in a process that is timed as well.

A process to which CUPTI is attached pays for each launch and each kernel: on an H200 3 us of the host for a launch, and
a fifth of a small kernel's time, also long after the last recording (benchmarks/passbench/h200_profiler). So torch is
told to detach CUPTI whenever a recording ends, by `TEARDOWN_CUPTI` in a worker's environment.

A CUDA graph that is made or launched while CUPTI is attached, and launched again behind that, is what torch warns of
(`torch.profiler.profiler`: "CUDA Graph does not work well with CUPTI teardown"). Launches as graphs of their own were
such graphs on 28 November 2026, and two of some hundred trials of a pass with a `Launch` ended with "unspecified launch
failure" on H200s. So launches go one by one while kernels are recorded.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from passbench.launch.native_launch import one_by_one


@contextmanager
def profiled() -> Iterator[torch.profiler.profile]:
    """Record kernels, copies and fills while the context lasts; a GPU is needed. CUPTI is detached behind it."""
    with one_by_one():
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            yield profiler
        torch.cuda.synchronize()  # a thread of torch's detaches CUPTI as the next call of CUDA returns: this one

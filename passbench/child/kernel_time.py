"""How long the device is busy with a piece of code, by CUPTI: for what cannot be captured in a CUDA graph."""

from collections.abc import Callable, Iterable

import torch
from torch.autograd import DeviceType

from passbench.child.profiled import profiled


def device_us(run: Callable[[], None]) -> float:
    """Microseconds in which kernels, copies and fills of `run` were at work on the device; 0 if none was recorded."""
    with profiled() as profiler:
        run()
        torch.cuda.synchronize()
    return busy_us(
        (event.time_range.start, event.time_range.end)
        for event in profiler.events()
        if event.device_type == DeviceType.CUDA and not event.is_user_annotation  # annotations span gaps
    )


def busy_us(intervals: Iterable[tuple[float, float]]) -> float:
    """The length of the union of intervals: kernels that run at the same time count once."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total

"""Kernels, copies and fills that the device runs inside of replacements."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch.autograd import DeviceType


class DeviceWatch:
    """Records what the device runs, and which of it between marks.

    The profiler is slow to start, so it runs once over the whole graph. Replacements are told apart by the device's
    own order: before and after each there is a marking kernel, with nothing under way. Neither the host's clock nor
    correlation with host threads, which a thread of the pass would escape, is needed.
    """

    def __init__(self) -> None:
        self._marks = 0

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What the device runs in this context counts."""
        self._mark()
        try:
            yield
        finally:
            self._mark()

    def _mark(self) -> None:
        torch.cuda.synchronize()
        torch.cuda._sleep(1)
        torch.cuda.synchronize()
        self._marks += 1

    def kernels(self, profiler: torch.profiler.profile) -> set[str] | None:
        """Names, once the profiler has stopped; None if it did not record all marks."""
        events = [event for event in profiler.events() if event.device_type == DeviceType.CUDA]
        events.sort(key=lambda event: event.time_range.start)
        return between_marks([event.name for event in events], self._marks)


MARK = "::spin_kernel("
"""In the name of the kernel of `torch.cuda._sleep`, which nothing else launches, and in no name of a Triton kernel."""


def between_marks(names: Sequence[str], marks: int) -> set[str] | None:
    """The names between each odd mark and the next; None if there are not so many marks."""
    found: set[str] = set()
    seen = 0
    for name in names:
        if MARK in name:
            seen += 1
        elif seen % 2:
            found.add(name)
    return found if seen == marks else None

"""Memory in segments, such as the places of an input's calls: scaled, shifted and reached by few operations in all."""

from collections.abc import Iterator

import torch

_AT_ONCE = 1 << 23
"""Elements whose scales and shifts are written out at a time: 32 MiB each in single precision."""

_ALONE = 1 << 19
"""A segment of more elements is scaled by itself: that costs less than to write out its scales."""


def scale_and_shift(values: torch.Tensor, lengths: torch.Tensor, scales: torch.Tensor, shifts: torch.Tensor) -> None:
    """Multiply the values of each segment by its scale and add its shift, in place.

    `lengths`: int64 of shape (segments,) on the CPU, elements of each, in order. `scales`, `shifts`: of shape
    (segments,), on the device of `values`. A view of each segment would cost more time than drawing its values: there
    may be thousands.
    """
    both = torch.stack((scales, shifts)).to(torch.promote_types(values.dtype, torch.float32))
    begin = 0
    for first, behind in _runs(lengths):
        own, of_each = both[:, first:behind], lengths[first:behind]
        part = values[begin : (begin := begin + int(of_each.sum()))]
        if len(of_each) > 1:
            own = own.repeat_interleave(of_each.to(values.device), 1, output_size=len(part))
        part.mul_(own[0]).add_(own[1])


def _runs(lengths: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Segments in runs [first, behind) of `_AT_ONCE` elements or little more; a segment of more than `_ALONE` is alone."""
    chunk = (lengths.cumsum(0) - 1) // _AT_ONCE
    alone = lengths > _ALONE
    bounds = (chunk[1:] != chunk[:-1]) | alone[1:] | alone[:-1]
    starts = [0, *(bounds.nonzero().flatten() + 1).tolist()]
    yield from zip(starts, [*starts[1:], len(lengths)], strict=True)


def one_of_each(lengths: torch.Tensor, gen: torch.Generator) -> torch.Tensor:
    """The index of a random element of each segment.

    `lengths`: int64 of shape (segments,) on the generator's device, none of them 0.
    """
    drawn = torch.rand(lengths.shape, dtype=torch.float64, device=lengths.device, generator=gen)
    return lengths.cumsum(0) - lengths + (drawn * lengths).long().minimum(lengths - 1)


def spread(size: int, count: int, gen: torch.Generator) -> torch.Tensor:
    """So many random indices below `size`, at most all, in order and none twice.

    Of two values for one element a GPU keeps either, and a draw could not be repeated. So each index is drawn from a
    part of its own; what the parts leave over lies before or behind them.
    """
    count = min(count, size)
    part = size // count
    drawn = {"generator": gen, "device": gen.device}
    start = torch.randint(0, size - part * count + 1, (1,), **drawn)
    return start + torch.arange(0, part * count, part, device=gen.device) + torch.randint(0, part, (count,), **drawn)


def segment_of(indices: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The number of the segment that each index lies in; both on one device."""
    return torch.searchsorted(lengths.cumsum(0), indices, right=True)

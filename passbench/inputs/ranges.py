"""Floating-point inputs that are drawn from a range, all of a dtype at once, as those of `moments` are."""

from collections.abc import Sequence

import torch

from passbench.inputs.distribution import Distribution
from passbench.inputs.moments import without_facts
from passbench.inputs.segments import beside, here_and_there, nine_of_ten, of_rows, rows, segment_of, sent
from storage.records import Input, dtype_of

_BUFFER_RANGE = (0.5, 1.5)  # running variances must be positive
_NARROWEST = 1 / 8  # of the range


def ends(spec: Input) -> tuple[float, float]:
    """Of the declared range; without an upper one it is a single value."""
    return spec.low, spec.low if spec.high is None else spec.high


def range_of(spec: Input) -> tuple[float, float] | None:
    """The part of the declared range that the input's own dtype holds, or a buffer's; None where there is no range."""
    if without_facts(spec):
        return _BUFFER_RANGE
    if spec.low is None:
        return None
    most = torch.finfo(dtype_of(spec.dtype)).max  # a mask's -3.4e38 is more than half precision holds
    low, high = (min(max(end, -most), most) for end in ends(spec))
    return low, high


def fill_by_range(
    values: torch.Tensor,
    specs: Sequence[Input],
    lengths: Sequence[torch.Tensor],
    how: Distribution,
    gen: torch.Generator,
) -> None:
    """Draw `values`, a vector of one floating-point dtype, in place. All `specs` have a range.

    `lengths`: as for `moments.fill_by_moments`. OFFSET is the upper quarter of the range, SCALED its two ends; SPARSE
    has nine zeros of ten, or what of the range is next to 0. VARIED has a part of the range for each call, at least an
    eighth of it, and both ends here and there. A range so wide that a sum would be infinite has no parts.
    """
    ranges = [range_of(spec) for spec in specs]
    if how is Distribution.VARIED:
        _fill_varied(values, ranges, lengths, gen)
        return
    for part, (low, high) in zip(values.split([int(each.sum()) for each in lengths]), ranges, strict=True):
        _fill_one(part, low, high, how, gen)


def _fill_one(values: torch.Tensor, low: float, high: float, how: Distribution, gen: torch.Generator) -> None:
    if how is Distribution.OFFSET:
        low = high - (high / 4 - low / 4)
    wide = high / 2 - low / 2 > torch.finfo(values.dtype).max / 2  # torch refuses such a range
    if wide:
        values.uniform_(low / 2, high / 2, generator=gen).mul_(2)
    else:
        values.uniform_(low, high, generator=gen)
    if how is Distribution.SCALED:
        upper = values > low / 2 + high / 2
        values.fill_(low).masked_fill_(upper, high)
    elif how is Distribution.SPARSE:
        values.masked_fill_(nine_of_ten(values, gen), min(max(0.0, low), high))


def _fill_varied(
    values: torch.Tensor,
    ranges: Sequence[tuple[float, float]],
    lengths: Sequence[torch.Tensor],
    gen: torch.Generator,
) -> None:
    each, calls = torch.cat(list(lengths)), torch.tensor([len(one) for one in lengths])
    own = torch.tensor(ranges, dtype=torch.float64).repeat_interleave(calls, 0).T
    near = beside(gen, len(values))
    low, high = sent(own, near.device)
    width, place = torch.rand((2, len(each)), dtype=torch.float64, device=near.device, generator=near)
    half, most = high / 2 - low / 2, torch.finfo(values.dtype).max
    width = torch.where(torch.maximum(-low, high) < most / 4, _NARROWEST**width, 1.0)
    values.uniform_(0.0, 1.0, generator=gen)
    start, span = low / 2 + (1 - width) * half * place, width * half
    kind = torch.promote_types(values.dtype, torch.float32)
    scale, shift, least, largest = of_rows(sent(torch.stack((span, start, low, high)).to(kind), values.device), each)
    seen = rows(values, each)
    seen.mul_(scale).add_(shift).mul_(2)  # its half first, since the range may be wider than the largest number
    seen.clamp_(least.to(values.dtype), largest.to(values.dtype))
    there = sent(each, near.device)
    for end in (low, high):
        places = here_and_there(values, len(each), near)
        ends_there = end[segment_of(places, there)].to(values.dtype)
        values.index_copy_(0, sent(places, values.device), sent(ends_there, values.device))

"""Floating-point inputs that are drawn by mean and standard deviation, all of a dtype at once.

A graph has dozens of such inputs, most of them small, and PassBench draws a variant's inputs a hundred times. By
operations of their own they took the host a third of a variant's seconds.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from passbench.inputs.distribution import Distribution
from passbench.inputs.segments import (
    beside,
    here_and_there,
    nine_of_ten,
    of_rows,
    one_of_each,
    rows,
    scale_and_shift,
    segment_of,
    sent,
)
from storage.records import Input, dtype_of

_MEAN_STD = {"input": (0.0, 1.0), "parameter": (0.0, 0.05)}

_CONSTANT = 1e-3
"""A std below this part of the mean, or a std and a mean below this, are those of a tensor nobody has trained."""

_SPREAD_OF_MEAN, _SPREAD = 0.1, 0.05
"""The std that such a tensor gets: a part of its mean, or a number where that is 0. A mean next to 0 becomes the
number: what a layer's scale of 1e-6 multiplies would lie within the tolerance."""

_FREEDOM = {True: (4.0, 2.0), False: (2.0, 0.5)}
"""Of inputs, and of parameters and buffers: the largest factor of the std, and the largest offset in stds."""

_SPIKE_STDS = (4.0, 16.0)
_FARTHEST_STDS = 32.0  # where the third power of a value of std 1 still fits into half precision


def by_moments(spec: Input) -> bool:
    """Whether an input is drawn by its moments: a floating-point one without a range that the model needs.

    A range of one value of a parameter or buffer is what an initialisation left. A buffer of which nothing is known may
    be a variance and is drawn from a range of positive numbers.
    """
    if not dtype_of(spec.dtype).is_floating_point:
        return False
    return is_constant(spec) or (spec.low is None and not without_facts(spec))


def is_constant(spec: Input) -> bool:
    """Whether the range that a parameter's or buffer's record declares is one value."""
    return spec.role != "input" and spec.low is not None and spec.high in (None, spec.low)


def without_facts(spec: Input) -> bool:
    """Whether an input is a buffer whose record declares neither range nor moments."""
    return spec.role == "buffer" and spec.low is None and spec.mean is None and spec.std is None


def moments(spec: Input) -> tuple[float, float]:
    """Mean and std, the std no smaller than makes values differ from call to call."""
    mean, std = _MEAN_STD.get(spec.role, (0.0, 1.0))
    mean = mean if spec.mean is None else spec.mean
    std = std if spec.std is None else abs(spec.std)
    if is_constant(spec):
        mean, std = float(spec.low), 0.0
    if max(abs(mean), std) < _CONSTANT:
        mean, std = math.copysign(_SPREAD, mean) if abs(mean) > 3 * std else 0.0, 0.0
    if std < _CONSTANT * (abs(mean) or 1.0):
        std = _SPREAD_OF_MEAN * abs(mean) or _SPREAD
    return mean, std


def fill_by_moments(
    values: torch.Tensor,
    specs: Sequence[Input],
    lengths: Sequence[torch.Tensor],
    how: Distribution,
    gen: torch.Generator,
) -> None:
    """Draw `values`, a vector of one floating-point dtype, in place.

    `lengths`: of each of the `specs` int64 on the CPU, how many elements belong to each call, in order; the values of
    a spec follow those of the spec before it.
    """
    own = torch.tensor([_facts(spec, how) for spec in specs], dtype=torch.float64)
    calls, each = torch.tensor([len(one) for one in lengths]), torch.cat(list(lengths))
    if how is Distribution.VARIED:
        _fill_varied(values, each, own.repeat_interleave(calls, 0).T, gen)
        return
    values.normal_(0.0, 1.0, generator=gen)
    whole = each.cumsum(0)[calls.cumsum(0) - 1].diff(prepend=torch.zeros(1, dtype=torch.int64))
    mean, std = own.T[:2]
    scale_and_shift(values, whole, std, mean)
    sparse = torch.tensor([how is Distribution.SPARSE and spec.role == "input" for spec in specs])
    if sparse.any():
        _keep_one_of_ten(values, whole, sparse, gen)


def _facts(spec: Input, how: Distribution) -> tuple[float, float, float, float, float]:
    """Mean and std of a draw; in VARIED the most by which the std may change, the most that the mean may in stds, and
    where the values may go.

    What lies above 0 by 3 stds may have to be positive, as variances are: there the std only shrinks, and offsets and
    spikes point away from 0, by 1 or -1. Everything else has 0 for that.
    """
    mean, std = moments(spec)
    factor, offset = _FREEDOM[spec.role == "input"]
    away = 0 if abs(mean) < 3 * std else (1 if mean > 0 else -1)
    if how is Distribution.VARIED:
        std = min(std, torch.finfo(dtype_of(spec.dtype)).max / 4 / _FARTHEST_STDS)
    elif spec.role == "input":
        mean, std = changed(mean, std, how)
    return mean, std, factor, offset, away


def changed(mean: float, std: float, how: Distribution) -> tuple[float, float]:
    """Mean and std of a SCALED or OFFSET draw; those of every other are left."""
    if how is Distribution.SCALED:
        return mean, 4 * std
    return (mean + 2 * std, std) if how is Distribution.OFFSET else (mean, std)


def _keep_one_of_ten(values: torch.Tensor, lengths: torch.Tensor, sparse: torch.Tensor, gen: torch.Generator) -> None:
    """Set nine of ten values to 0, of those segments that are `sparse`."""
    zero = nine_of_ten(values, gen)
    if not sparse.all():
        rows(zero, lengths).logical_and_(of_rows(sent(sparse, values.device), lengths))
    values.masked_fill_(zero, 0)


class _Freedom(NamedTuple):
    """Of each segment of a VARIED draw, on the device: its scale and shift in stds, and where its spikes point."""

    scale: torch.Tensor
    shift: torch.Tensor
    away: torch.Tensor


def _fill_varied(values: torch.Tensor, lengths: torch.Tensor, own: torch.Tensor, gen: torch.Generator) -> None:
    """Normal values, those of each segment with a std and mean of their own, and spikes.

    `own`: `_facts` of each segment, of shape (5, segments).
    """
    near = beside(gen, len(values))
    mean, std, factor, offset, away = sent(own, near.device)
    one, other = torch.rand((2, len(lengths)), dtype=torch.float64, device=near.device, generator=near)
    scale = factor ** torch.where(away != 0, -one, 2 * one - 1)
    shift = offset * torch.where(away != 0, away * other, 2 * other - 1)
    values.normal_(0.0, 1.0, generator=gen)
    _add_spikes(values, sent(lengths, near.device), _Freedom(scale, shift, away), near)
    scale_and_shift(values, lengths, std * scale, mean + std * shift)


def _add_spikes(values: torch.Tensor, lengths: torch.Tensor, free: _Freedom, gen: torch.Generator) -> None:
    """Replace one value of each segment, and one in some hundreds of all, by one far from the mean. `lengths` and
    `free` are on the generator's device."""
    anywhere, in_each = here_and_there(values, 1, gen), one_of_each(lengths, gen)
    places = torch.cat((anywhere, in_each))
    scale, shift, away = torch.stack(free).index_select(1, segment_of(places, lengths))
    height = torch.empty_like(scale).uniform_(*_SPIKE_STDS, generator=gen)
    sign = torch.empty_like(scale).bernoulli_(0.5, generator=gen).mul_(2).sub_(1)
    limited = (sign * height).clamp((-_FARTHEST_STDS - shift) / scale, (_FARTHEST_STDS - shift) / scale)
    spikes = torch.where(away != 0, away * height, limited).to(values.dtype)
    places, spikes, count = sent(places, values.device), sent(spikes, values.device), len(anywhere)
    values.index_copy_(0, places[:count], spikes[:count])
    values.index_copy_(0, places[count:], spikes[count:])  # after the others: they may meet

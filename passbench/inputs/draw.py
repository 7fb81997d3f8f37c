"""Values of a variant's inputs, drawn from a seed: deterministic by (seed, index) on one kind of device.

No value may be foreseen. A tensor that its record declares constant (a bias of zeros, a scale of ones) is drawn with a
spread, or a pass could leave it out. VARIED gives every call a scale and an offset of its own and puts spikes at random
places, or a pass could assume the moments of a distribution, and skip elements that tolerances hide.
"""

import hashlib
import struct
from enum import Enum

import torch

from passbench.ipc.shared_memory import extent
from storage.records import Input, dtype_of

PYTHON_INT = "int"
"""`Input.dtype` of a Python integer."""


class Distribution(Enum):
    """How floating-point inputs are drawn; within [low, high] where the record declares a range.

    Parameters and buffers keep the record's moments: they are drawn as NORMAL instead of SCALED, OFFSET and SPARSE, and
    have less freedom in VARIED.
    """

    NORMAL = "normal"  # the declared mean and std, or uniform over the declared range
    VARIED = "varied"  # each call with another std and mean, or part of the range, and with spikes at random places
    SCALED = "scaled"  # four times the std, or the ends of the range
    OFFSET = "offset"  # the mean shifted by two std, or the upper quarter of the range
    SPARSE = "sparse"  # nine of ten values zero, or the range's value nearest to zero


CORRECTNESS = (
    Distribution.NORMAL,
    Distribution.SCALED,
    Distribution.OFFSET,
    Distribution.SPARSE,
    Distribution.VARIED,
)
"""Distributions of successive correctness draws."""

_MEAN_STD = {"input": (0.0, 1.0), "parameter": (0.0, 0.05)}
_BUFFER_RANGE = (0.5, 1.5)  # running variances must be positive


def generator(seed: int, index: int, device: torch.device | str) -> torch.Generator:
    """A generator of the `index`-th draw of a seed; nearby seeds and indices give unrelated streams."""
    digest = hashlib.blake2b(struct.pack("<qq", seed, index), digest_size=8).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "little") >> 1)


class InputError(ValueError):
    """The record of an input says nothing that values could be drawn from."""


def integer_value(spec: Input) -> int:
    """The value of a Python integer input: its `low` (1 if none). It is a size, so no draw varies it."""
    return 1 if spec.low is None else int(spec.low)


def fill(
    values: torch.Tensor,
    spec: Input,
    how: Distribution,
    gen: torch.Generator,
    calls: torch.Tensor | None = None,
) -> None:
    """Draw `values`, the memory of one input as a contiguous tensor of its dtype, in place.

    `calls`: int64 on the CPU, how many elements of `values` belong to each call, in order; None: all are one call's.
    Integers are uniform in [low, high], both inclusive; booleans too, with low 0 and high 1; integers without a range
    are 0 or 1, so that they can index anything. Of a range the part is used that the dtype can hold. Raises InputError
    for a range that is none.
    """
    if values.numel() == 0:
        return
    dtype = values.dtype
    if spec.low is not None and not (ends := _ends(spec))[0] <= ends[1]:
        raise InputError(f"input {spec.name}: no values lie in [{spec.low}, {spec.high}]")
    if not (dtype.is_floating_point or dtype.is_complex):
        low, high = _integer_range(spec, dtype)
        _integers(values, low, high, gen)
        return
    if spec.role != "input" and how is not Distribution.VARIED:
        how = Distribution.NORMAL
    direct = dtype not in _NOT_DRAWN
    target = values if direct else torch.empty(values.shape, dtype=torch.float32, device=values.device)
    if calls is None:
        calls = torch.tensor([values.numel()])
    low, high = (None, None) if _is_constant(spec) else _float_range(spec, dtype)
    if low is None:
        _fill_normal(target, calls, spec, how, gen)
    elif dtype.is_complex:
        for part in torch.view_as_real(target).unbind(-1):
            _uniform(part, low, high, gen)
    else:
        _fill_range(target, calls, low, high, how, gen)
    if not direct:
        values.copy_(target)


_INT_RANDOM = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
_NOT_DRAWN = (torch.complex32, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


def _integers(values: torch.Tensor, low: int, high: int, gen: torch.Generator) -> None:
    """Uniform integers in [low, high]; through int64 where the dtype has no generator of its own."""
    if values.dtype in _INT_RANDOM:
        values.random_(low, high + 1, generator=gen)
    else:
        drawn = torch.empty(values.shape, dtype=torch.int64, device=values.device)
        values.copy_(drawn.random_(low, high + 1, generator=gen))


def _ends(spec: Input) -> tuple[float, float]:
    """Of the declared range; without an upper one it is a single value."""
    return spec.low, spec.low if spec.high is None else spec.high


def _integer_range(spec: Input, dtype: torch.dtype) -> tuple[int, int]:
    if spec.low is None:
        return 0, 1
    least, most = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, min(torch.iinfo(dtype).max, 2**62))
    low, high = (int(min(max(end, least), most)) for end in _ends(spec))
    return low, high


def _float_range(spec: Input, dtype: torch.dtype) -> tuple[float, float] | tuple[None, None]:
    if spec.low is not None:
        most = torch.finfo(dtype).max  # a mask's -3.4e38 is more than half precision holds
        low, high = (min(max(end, -most), most) for end in _ends(spec))
        return low, high
    if spec.role == "buffer" and spec.mean is None and spec.std is None:
        return _BUFFER_RANGE
    return None, None


_CONSTANT = 1e-3
"""A std below this part of the mean, or below this where the mean is 0, is that of a tensor nobody has trained."""

_SPREAD_OF_MEAN, _SPREAD = 0.1, 0.05
"""The std that such a tensor gets: a part of its mean, or a number where that is 0."""


def _is_constant(spec: Input) -> bool:
    """Whether a range that the record declares is one value of a parameter or buffer: what an initialisation left, not
    a limit that the model needs."""
    return spec.role != "input" and spec.low is not None and spec.low == _ends(spec)[1]


def _moments(spec: Input) -> tuple[float, float]:
    """Mean and std, the std no smaller than makes values differ from call to call."""
    mean, std = _MEAN_STD.get(spec.role, (0.0, 1.0))
    mean = mean if spec.mean is None else spec.mean
    std = std if spec.std is None else abs(spec.std)
    if _is_constant(spec):
        mean, std = float(spec.low), 0.0
    if std < _CONSTANT * (abs(mean) or 1.0):
        std = _SPREAD_OF_MEAN * abs(mean) or _SPREAD
    return mean, std


def _fill_normal(
    values: torch.Tensor, calls: torch.Tensor, spec: Input, how: Distribution, gen: torch.Generator
) -> None:
    mean, std = _moments(spec)
    if how is Distribution.SCALED:
        std *= 4
    elif how is Distribution.OFFSET:
        mean += 2 * std
    if how is Distribution.VARIED and values.dtype.is_floating_point:
        _fill_varied(values, calls, mean, std, _FREEDOM[spec.role == "input"], gen)
        return
    values.normal_(mean, std, generator=gen)
    if how is Distribution.SPARSE:
        values.masked_fill_(_nine_of_ten(values, gen), 0)


_FREEDOM = {True: (4.0, 2.0), False: (2.0, 0.5)}
"""Of inputs, and of parameters and buffers: the largest factor of the std, and the largest offset in stds."""

_SPIKE_STDS = (4.0, 16.0)
_FARTHEST_STDS = 32.0  # where the third power of a value of std 1 still fits into half precision
_ELEMENTS_PER_SPIKE = 256


def _fill_varied(
    values: torch.Tensor,
    calls: torch.Tensor,
    mean: float,
    std: float,
    freedom: tuple[float, float],
    gen: torch.Generator,
) -> None:
    """Normal values, each call's with a std and mean of its own, and spikes. What lies above 0 by 3 stds may have to be
    positive, as variances are: there the std only shrinks, and offsets and spikes point away from 0."""
    most, offset = freedom
    away = 0 if abs(mean) < 3 * std else (1 if mean > 0 else -1)
    scales, shifts = _uniform_of_each(calls, values.device, gen)
    scales = most ** (-scales if away else 2 * scales - 1)
    shifts = mean + std * offset * (away * shifts if away else 2 * shifts - 1)
    std = min(std, torch.finfo(values.dtype).max / 4 / _FARTHEST_STDS)
    values.normal_(0.0, std, generator=gen)
    spikes = _places(values, len(calls), gen)
    height = torch.empty(spikes.shape, dtype=values.dtype, device=values.device).uniform_(*_SPIKE_STDS, generator=gen)
    height.mul_(std * away if away else std)
    if not away:
        height.mul_(torch.empty_like(height).bernoulli_(0.5, generator=gen).mul_(2).sub_(1))
    values.index_copy_(0, spikes, height)
    _scale_and_shift(values, calls, scales, shifts)
    if not away:
        values.clamp_(mean - _FARTHEST_STDS * std, mean + _FARTHEST_STDS * std)


def _uniform_of_each(calls: torch.Tensor, device: torch.device, gen: torch.Generator) -> torch.Tensor:
    """Two random numbers in [0, 1) of each call, float64 of shape (2, calls)."""
    return torch.rand((2, len(calls)), dtype=torch.float64, device=device, generator=gen)


_AT_ONCE = 1 << 24
"""Elements whose scales and shifts are written out at a time: 64 MiB each in single precision."""


def _scale_and_shift(values: torch.Tensor, calls: torch.Tensor, scales: torch.Tensor, shifts: torch.Tensor) -> None:
    """Multiply the values of each call by its scale and add its shift, in place.

    A view of each call's values would cost more time than drawing them: there are hundreds of calls.
    """
    both = torch.stack((scales, shifts)).to(torch.promote_types(values.dtype, torch.float32))
    together = max(1, _AT_ONCE // int(calls.max()))
    begin = 0
    for lengths, own in zip(calls.split(together), both.split(together, 1), strict=True):
        part = values[begin : (begin := begin + int(lengths.sum()))]
        if len(lengths) > 1:
            own = own.repeat_interleave(lengths.to(values.device), 1, output_size=len(part))
        part.mul_(own[0]).add_(own[1])


def _places(values: torch.Tensor, calls: int, gen: torch.Generator) -> torch.Tensor:
    """Random indices of `values`: one element in some hundreds, and as many as there are calls at least.

    No index occurs twice: of two values for one element a GPU keeps either, and the draw could not be repeated. So each
    is drawn from a part of its own; what the parts leave over lies before or behind them.
    """
    size = values.numel()
    count = min(max(calls, size // _ELEMENTS_PER_SPIKE), size)
    part = size // count
    drawn = {"generator": gen, "device": values.device}
    start = torch.randint(0, size - part * count + 1, (1,), **drawn)
    return start + torch.arange(0, part * count, part, device=values.device) + torch.randint(0, part, (count,), **drawn)


def _uniform(values: torch.Tensor, low: float, high: float, gen: torch.Generator) -> None:
    """Also from ranges wider than the largest number, which torch refuses."""
    if high / 2 - low / 2 > torch.finfo(values.dtype).max / 2:
        values.uniform_(low / 2, high / 2, generator=gen).mul_(2)
    else:
        values.uniform_(low, high, generator=gen)


_NARROWEST = 1 / 8  # of the range


def _fill_range(
    values: torch.Tensor, calls: torch.Tensor, low: float, high: float, how: Distribution, gen: torch.Generator
) -> None:
    if how is Distribution.OFFSET:
        _uniform(values, high - (high / 4 - low / 4), high, gen)
        return
    _uniform(values, low, high, gen)
    if how is Distribution.SCALED:
        upper = values > low / 2 + high / 2
        values.fill_(low).masked_fill_(upper, high)
    elif how is Distribution.SPARSE:
        values.masked_fill_(_nine_of_ten(values, gen), min(max(0.0, low), high))
    elif how is Distribution.VARIED and max(abs(low), abs(high)) < torch.finfo(values.dtype).max / 4:
        widths, starts = _uniform_of_each(calls, values.device, gen)
        widths = _NARROWEST**widths
        starts = low + (1 - widths) * (high - low) * starts
        _scale_and_shift(values, calls, widths, starts - low * widths)
        values.clamp_(low, high)
        for end in (low, high):
            values.index_fill_(0, _places(values, len(calls), gen), end)


def _nine_of_ten(values: torch.Tensor, gen: torch.Generator) -> torch.Tensor:
    return torch.rand(values.shape, generator=gen, device=values.device) < 0.9


def make_input(spec: Input, how: Distribution, gen: torch.Generator) -> torch.Tensor | int:
    """One input with the record's dtype, shape and stride (strides of 0 and overlaps included), on the generator's
    device; a Python integer for dtype "int"."""
    if spec.dtype == PYTHON_INT:
        return integer_value(spec)
    values = torch.empty(extent(spec.shape, spec.stride), dtype=dtype_of(spec.dtype), device=gen.device)
    fill(values, spec, how, gen)
    return values.as_strided(spec.shape, spec.stride)


def make_inputs(
    specs: tuple[Input, ...],
    seed: int,
    index: int,
    device: torch.device | str,
    how: Distribution = Distribution.NORMAL,
) -> list[torch.Tensor | int]:
    """All inputs of a variant, in order, for the `index`-th draw of a seed."""
    gen = generator(seed, index, device)
    return [make_input(spec, how, gen) for spec in specs]

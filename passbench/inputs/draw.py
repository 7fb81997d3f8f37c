"""Values of a variant's inputs, drawn from a seed: deterministic by (seed, index) on one kind of device.

No value may be foreseen. A tensor that its record declares constant (a bias of zeros, a scale of ones) is drawn with a
spread, or a pass could leave it out. VARIED gives every call a scale and an offset of its own and puts spikes at random
places, or a pass could assume the moments of a distribution, and skip elements that tolerances hide.
"""

import hashlib
import struct
from collections.abc import Hashable, Sequence

import torch

from passbench.inputs.distribution import Distribution
from passbench.inputs.moments import by_moments, changed, fill_by_moments, is_constant, moments
from passbench.inputs.ranges import ends, fill_by_range, range_of
from passbench.inputs.segments import beside, here_and_there, nine_of_ten, one_of_each, sent
from passbench.ipc.shared_memory import extent
from storage.records import Input, dtype_of

PYTHON_INT = "int"
"""`Input.dtype` of a Python integer."""


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
    specs: Sequence[Input],
    how: Distribution,
    gen: torch.Generator,
    lengths: Sequence[torch.Tensor] | None = None,
    compared: Sequence[int] = (),
) -> None:
    """Draw `values`, the memory of inputs that are drawn together, a contiguous tensor of their dtype, in place.

    `specs`: one input, or several `drawn_together`, whose values follow each other. `lengths`: of each int64 on the
    CPU, how many elements belong to each call, in order; None: all values are one input's, and one call's.
    Integers are uniform in [low, high], both inclusive; booleans too, with low 0 and high 1; integers without a range
    are 0 or 1, so that they can index anything. Of a range the part is used that the dtype can hold. In VARIED some
    integers are one of `compared`; of half of the calls at least one is. Raises InputError for a range without a value.
    """
    if values.numel() == 0:
        return
    for spec in specs:
        if spec.low is not None and not (both := ends(spec))[0] <= both[1]:
            raise InputError(f"input {spec.name}: no values lie in [{spec.low}, {spec.high}]")
    spec, dtype = specs[0], values.dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        _integers(values, *integer_range(spec, dtype), gen)
        size = extent(spec.shape, spec.stride)
        if compared and how is Distribution.VARIED and size:
            each = lengths[0] if lengths else torch.tensor([values.numel()])
            _put(values, torch.tensor(compared, dtype=dtype), each, size, gen)
        return
    wider = _DRAWN_AS.get(dtype)
    target = torch.empty(values.shape, dtype=wider, device=values.device) if wider else values
    _floating(target, specs, how, gen, [torch.tensor([values.numel()])] if lengths is None else lengths)
    if wider:
        values.copy_(target)


def drawn_together(spec: Input) -> Hashable | None:
    """What inputs have in common that are drawn at once. None for an input that is drawn alone."""
    if by_moments(spec):
        return spec.dtype
    return (spec.dtype, spec.role == "input") if dtype_of(spec.dtype).is_floating_point else None


def _floating(
    values: torch.Tensor,
    specs: Sequence[Input],
    how: Distribution,
    gen: torch.Generator,
    lengths: Sequence[torch.Tensor],
) -> None:
    if by_moments(specs[0]):
        fill_by_moments(values, specs, lengths, how, gen)
        return
    spec = specs[0]
    if spec.role != "input" and how is not Distribution.VARIED:
        how = Distribution.NORMAL
    if not values.dtype.is_complex:
        fill_by_range(values, specs, lengths, how, gen)
    elif range_of(spec) is None or is_constant(spec):
        _fill_complex(values, spec, how, gen)
    else:
        numbers = torch.view_as_real(values).view(-1)
        fill_by_range(numbers, specs, [2 * one for one in lengths], Distribution.NORMAL, gen)


_INT_RANDOM = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
_DRAWN_AS = {torch.complex32: torch.complex64, **dict.fromkeys(_FLOAT8, torch.float32)}  # these have no generators


def _integers(values: torch.Tensor, low: int, high: int, gen: torch.Generator) -> None:
    """Uniform integers in [low, high]; through int64 where the dtype has no generator of its own."""
    if values.dtype in _INT_RANDOM:
        values.random_(low, high + 1, generator=gen)
    else:
        drawn = torch.empty(values.shape, dtype=torch.int64, device=values.device)
        values.copy_(drawn.random_(low, high + 1, generator=gen))


def _put(values: torch.Tensor, numbers: torch.Tensor, lengths: torch.Tensor, size: int, gen: torch.Generator) -> None:
    """Replace one value of each call, and one in some hundreds of all, by one of `numbers`, each with a chance of one
    half.

    `lengths`: as for `fill`, of the one input. `size`: how many of a call's elements the input has; what lies behind
    them belongs to no call.
    """
    near = beside(gen, len(values))
    for places in (here_and_there(values, 1, near), one_of_each(sent(lengths, near.device), near, size)):
        chosen = torch.randint(2 * len(numbers), places.shape, generator=near, device=near.device)
        places, chosen = sent(places, values.device), sent(chosen, values.device)
        put = sent(numbers, values.device)[chosen // 2]
        values.index_copy_(0, places, torch.where(chosen % 2 == 0, put, values[places]))


def integer_range(spec: Input, dtype: torch.dtype) -> tuple[int, int]:
    """The part of an integer input's range that the dtype can hold."""
    if spec.low is None:
        return 0, 1
    least, most = (0, 1) if dtype == torch.bool else (torch.iinfo(dtype).min, min(torch.iinfo(dtype).max, 2**62))
    low, high = (int(min(max(end, least), most)) for end in ends(spec))
    return low, high


def _fill_complex(values: torch.Tensor, spec: Input, how: Distribution, gen: torch.Generator) -> None:
    mean, std = changed(*moments(spec), how)
    values.normal_(mean, std, generator=gen)
    if how is Distribution.SPARSE:
        values.masked_fill_(nine_of_ten(values, gen), 0)


def make_input(spec: Input, how: Distribution, gen: torch.Generator) -> torch.Tensor | int:
    """One input with the record's dtype, shape and stride (strides of 0 and overlaps included), on the generator's
    device; a Python integer for dtype "int"."""
    if spec.dtype == PYTHON_INT:
        return integer_value(spec)
    values = torch.empty(extent(spec.shape, spec.stride), dtype=dtype_of(spec.dtype), device=gen.device)
    fill(values, (spec,), how, gen)
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

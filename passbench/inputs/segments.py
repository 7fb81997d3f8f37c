"""Memory in segments, such as the places of an input's calls: scaled, shifted and reached by few operations in all."""

import hashlib
import math
import struct

import torch


def scale_and_shift(values: torch.Tensor, lengths: torch.Tensor, scales: torch.Tensor, shifts: torch.Tensor) -> None:
    """Multiply the values of each segment by its scale and add its shift, in place.

    `lengths`: int64 of shape (segments,) on the CPU, elements of each, in order. `scales`, `shifts`: of shape
    (segments,), on any one device. A view of each segment would cost more time than drawing its values: there may be
    thousands.
    """
    both = torch.stack((scales, shifts)).to(torch.promote_types(values.dtype, torch.float32))
    scale, shift = of_rows(sent(both, values.device), lengths)
    rows(values, lengths).mul_(scale).add_(shift)


def rows(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The values as rows, as long as they can be with each row in one segment.

    The places of inputs begin at multiples of some hundred bytes. So what belongs to a segment is written out once a
    row and not once an element, of which a draw may have hundreds of millions.
    """
    return values.view(-1, math.gcd(*lengths.tolist()))


def of_rows(of_segments: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """What is known of each segment, shape (…, segments), for each of the `rows`: shape (…, rows, 1)."""
    counts = lengths // math.gcd(*lengths.tolist())
    repeats = sent(counts, of_segments.device)
    return of_segments.repeat_interleave(repeats, -1, output_size=int(counts.sum())).unsqueeze(-1)


def move_rows(target: torch.Tensor, source: torch.Tensor, pieces: torch.Tensor) -> None:
    """Copy pieces of `source` into `target`, both of shape (rows, …), in one operation.

    `pieces`: int64 of shape (3, pieces) on the CPU: the first row of each in `source`, that in `target`, and its rows,
    at least one. The pieces of `target` do not overlap. Both tensors may be one: all is read before it is written.
    """
    begins, counts = pieces[:2], pieces[2]
    size = int(counts.sum())
    near = pieces.device if size <= _FEW_ROWS else target.device
    ahead = sent(torch.cat((begins - counts.cumsum(0) + counts, counts.unsqueeze(0))), near)
    both = ahead[:2].repeat_interleave(ahead[2], -1, output_size=size) + torch.arange(size, device=near)
    first, second = sent(both, target.device)
    target.index_copy_(0, second, source.index_select(0, first))


_FEW_ROWS = 1 << 13
"""So many rows are found faster by the CPU than by several small kernels, which cost the host more."""


def sent(values: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Values of the CPU on a device. The host does not wait until the device has done what it was given before."""
    return values.to(device, non_blocking=True)


_FEW_VALUES = 1 << 22
"""What is drawn beside so many values takes the CPU less time than a GPU's host needs for fifty small kernels."""


def beside(gen: torch.Generator, count: int) -> torch.Generator:
    """The generator of what is drawn beside `count` values of `gen`, such as moments of segments and places of spikes:
    one of the CPU if the values are few, else `gen`. That of the CPU gives the same for the same state of `gen`, whose
    next values it does not change."""
    if gen.device.type == "cpu" or count > _FEW_VALUES:
        return gen
    return of_state(gen.initial_seed(), gen.get_offset())


def of_state(seed: int, offset: int) -> torch.Generator:
    """A generator of the CPU for a state of a GPU's: its `seed`, and how far it is.

    The CPU's takes 32 bits of a seed. A kernel can try so many in seconds. It would find those that explain its own
    call's inputs, know half of the GPU's seed, find the other half, and draw all other calls' inputs before they are
    there. So the whole state of this one is a digest of both: it cannot be tried, and says nothing of the seed.
    """
    made = torch.Generator().manual_seed(0)
    state = made.get_state()
    digest = hashlib.shake_256(struct.pack("<QQ", seed, offset)).digest(_WORDS * 4)
    words = torch.frombuffer(bytearray(digest), dtype=torch.int32).long() & 0xFFFFFFFF
    state[_BEFORE_WORDS : _BEFORE_WORDS + 8 * _WORDS].view(torch.int64).copy_(words)
    return made.set_state(state)


_WORDS, _BEFORE_WORDS = 624, 24
"""Words of a Mersenne twister, each in eight bytes, and what torch's state of it has before them: seed and position."""


def one_of_each(lengths: torch.Tensor, gen: torch.Generator, most: int | None = None) -> torch.Tensor:
    """The index of a random element of each segment, one of its first `most` if that is given.

    `lengths`: int64 of shape (segments,) on the generator's device, none of them 0; nor is `most`.
    """
    drawn = torch.rand(lengths.shape, dtype=torch.float64, device=lengths.device, generator=gen)
    own = lengths if most is None else lengths.clamp(max=most)
    return lengths.cumsum(0) - lengths + (drawn * own).long().minimum(own - 1)


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


def here_and_there(values: torch.Tensor, least: int, gen: torch.Generator) -> torch.Tensor:
    """The indices of one value in some hundreds, `least` of them or more, as `spread` gives them."""
    return spread(len(values), max(least, len(values) // _FEW), gen)


_FEW = 256


def segment_of(indices: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """The number of the segment that each index lies in; both on one device."""
    return torch.searchsorted(lengths.cumsum(0), indices, right=True)


def nine_of_ten(values: torch.Tensor, gen: torch.Generator) -> torch.Tensor:
    """A mask of the shape of `values`, True at nine of ten places in the mean."""
    return torch.rand(values.shape, generator=gen, device=values.device) < 0.9

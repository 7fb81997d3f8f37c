"""Where the inputs and outputs of a batch of calls lie in the shared memory, and what is written there.

A call must find its own inputs and nothing else. The places of an input lie at irregular distances and in random order.
Between them and beside them lie values that belong to no call. So a pass that reads past a tensor finds what looks like
the inputs of another call, and mostly is not.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from passbench.inputs.distribution import Distribution
from passbench.inputs.draw import PYTHON_INT, drawn_together, fill, generator, integer_value
from passbench.inputs.segments import move_rows
from passbench.ipc.messages import Batch, Block, OutputKind, OutputMeta
from passbench.ipc.shared_memory import ALIGNMENT, extent
from storage.records import Input, contiguous_stride, dtype_of

_SHIFTS = 64
"""Every batch starts at one of so many addresses, so that addresses cannot be foreseen."""

_MOST_GAP = 4
"""Units of `ALIGNMENT` between two places of an input, at most."""

_POISON_FLOAT, _POISON_OTHER = 0xFF, 0xA5  # bytes of a NaN in every floating dtype; no likely integer


@dataclass(frozen=True)
class BatchLayout:
    """A batch whose inputs lie in bytes [start, middle) of the shared memory and whose outputs lie in [middle, end).

    `groups`: the numbers of the inputs that are drawn together. `twice`: the calls whose inputs also lie at a place of
    `batch.late`. `rehearsed`: the first call is made before the inputs of all others are there, and is not timed. A
    batch is often drawn again, so that what its draws need of the places is worked out once.
    """

    batch: Batch
    start: int
    middle: int
    end: int
    groups: tuple[tuple[int, ...], ...]
    twice: tuple[int, ...]
    rehearsed: bool = False

    @cached_property
    def lengths(self) -> list[Sequence[torch.Tensor]]:
        """Of each group's inputs, the elements from each place to the next, the gap between them included."""
        return [_lengths([self.batch.inputs[n] for n in group]) for group in self.groups]

    @cached_property
    def to_late(self) -> torch.Tensor | None:
        """The pieces that bring inputs to their second places, as `move_rows` takes them."""
        return _pieces(self.batch, [self.batch.order[call] for call in self.twice], self.batch.late)

    @cached_property
    def of_first(self) -> torch.Tensor | None:
        """The pieces that bring the first call's inputs to their places."""
        first = self.batch.order[:1]
        return _pieces(self.batch, first, first)

    @cached_property
    def of_others(self) -> torch.Tensor | None:
        """The pieces that bring another call's inputs to the first places of sealed calls."""
        batch = self.batch
        others = [batch.order[(call + 1) % batch.calls] for call in batch.sealed]
        return _pieces(batch, others, [batch.order[call] for call in batch.sealed] if batch.late else ())


def call_bytes(specs: tuple[Input, ...], outputs: tuple[OutputMeta, ...]) -> int:
    """Bytes that one call's inputs and outputs take at most, gaps included."""
    inputs = [_kind(dtype_of(s.dtype), tuple(s.shape), tuple(s.stride)) for s in specs if s.dtype != PYTHON_INT]
    slots = [_slot(meta) for meta in outputs if meta.kind is not OutputKind.NONE]
    return sum(block.size + _MOST_GAP * ALIGNMENT for block in inputs) + sum(block.size for block in slots)


def lay_out(
    specs: tuple[Input, ...],
    outputs: tuple[OutputMeta, ...],
    calls: int,
    rng: random.Random,
    *,
    sealed: int = 0,
    twice: int = 0,
    rehearsed: bool = False,
) -> BatchLayout:
    """The layout of a batch of `calls` calls. `rng` chooses the places, and which `sealed` of the calls are sealed.

    So many calls have inputs that lie at a second place, `twice`: as many as are sealed, whose inputs wait there, or
    none. Where none is sealed, they make the batch look as if some were. Of a `rehearsed` batch the first call is none
    of them.
    """
    places = calls + twice
    offset = start = rng.randrange(_SHIFTS) * ALIGNMENT
    inputs: list[Block | int] = [integer_value(spec) if spec.dtype == PYTHON_INT else 0 for spec in specs]
    groups = _groups(specs)
    for number in (n for group in groups for n in group):
        spec = specs[number]
        block = _kind(dtype_of(spec.dtype), tuple(spec.shape), tuple(spec.stride))
        starts = []
        for _ in range(places):
            starts.append(offset)
            offset += block.size + rng.randint(0, _MOST_GAP) * ALIGNMENT
        inputs[number] = block._replace(starts=tuple(starts))
    middle = offset
    slots: list[Block | None] = []
    for meta in outputs:
        if meta.kind is OutputKind.NONE:
            slots.append(None)
            continue
        block = _slot(meta)
        slots.append(block._replace(starts=range(offset, offset + calls * block.size, block.size)))
        offset += calls * block.size
    order = rng.sample(range(places), places)
    chosen = tuple(sorted(rng.sample(range(int(rehearsed), calls), max(sealed, twice))))
    batch = Batch(calls, tuple(inputs), tuple(slots), tuple(order[:calls]), chosen[:sealed], tuple(order[calls:]))
    return BatchLayout(batch, start, middle, offset, groups, chosen[:twice], rehearsed)


def _groups(specs: Sequence[Input]) -> tuple[tuple[int, ...], ...]:
    """The numbers of the tensors among the inputs. Those of a group lie side by side, since they are drawn together."""
    groups: dict[str | int, list[int]] = {}
    for number, spec in enumerate(specs):
        if spec.dtype != PYTHON_INT:
            groups.setdefault(drawn_together(spec) or number, []).append(number)
    return tuple(map(tuple, groups.values()))


def _slot(meta: OutputMeta) -> Block:
    return _kind(meta.dtype, meta.shape, contiguous_stride(meta.shape))


def _kind(dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> Block:
    """A block without places."""
    size = extent(shape, stride) * dtype.itemsize
    return Block((), max(-(-size // ALIGNMENT), 1) * ALIGNMENT, dtype, shape, stride)


def view(memory: torch.Tensor, block: Block) -> torch.Tensor:
    """The tensors at all places of an output's block as one view; the first dimension is the place."""
    step = block.size // block.dtype.itemsize
    return elements(memory, block).as_strided((len(block.starts), *block.shape), (step, *block.stride))


def at(memory: torch.Tensor, block: Block, place: int) -> torch.Tensor:
    """The tensor at one place of a block, as a view of the memory."""
    start = block.starts[place]
    return memory[start : start + block.size].view(block.dtype).as_strided(block.shape, block.stride)


def elements(memory: torch.Tensor, block: Block) -> torch.Tensor:
    """The memory of a block, padding and gaps included, as a flat view of its dtype."""
    return raw(memory, block).view(block.dtype)


def raw(memory: torch.Tensor, block: Block) -> torch.Tensor:
    """The bytes of a block, padding and gaps included."""
    return memory[block.offset : block.end]


def same(one: torch.Tensor, other: torch.Tensor, block: Block) -> bool:
    """Whether a block holds the same bytes in two memories, gaps included."""
    return torch.equal(*(raw(memory, block).view(torch.int64) for memory in (one, other)))  # not byte by byte


def same_inputs(one: torch.Tensor, other: torch.Tensor, layout: BatchLayout) -> bool:
    """Whether all inputs of a batch are the same bytes in two memories, and what lies between them."""
    return torch.equal(*(memory[layout.start : layout.middle].view(torch.int64) for memory in (one, other)))


def draw(
    memory: torch.Tensor,
    layout: BatchLayout,
    specs: tuple[Input, ...],
    seed: int,
    index: int,
    how: Distribution,
    compared: Mapping[int, Sequence[int]] | None = None,
) -> None:
    """Draw the inputs of every call afresh into `memory`: draw number `index` of the seed. The gaps are drawn too, and
    the inputs of some calls lie at both of their places. `compared`: by input, see `compared_numbers`."""
    gen = generator(seed, index, memory.device)
    for group, lengths in zip(layout.groups, layout.lengths, strict=True):
        first, last = layout.batch.inputs[group[0]], layout.batch.inputs[group[-1]]
        values = memory[first.offset : last.end].view(first.dtype)
        fill(values, [specs[n] for n in group], how, gen, lengths, (compared or {}).get(group[0], ()))
    _move(memory, memory, layout, layout.to_late)


def withhold(memory: torch.Tensor, drawn: torch.Tensor, layout: BatchLayout) -> None:
    """Put another call's inputs where those of the sealed calls belong; their own wait at their late places."""
    _move(memory, drawn, layout, layout.of_others)


def hand_over_first(memory: torch.Tensor, drawn: torch.Tensor, layout: BatchLayout) -> None:
    """Bring the first call's inputs to their places, and no others."""
    _move(memory, drawn, layout, layout.of_first)


def _pieces(batch: Batch, sources: Sequence[int], targets: Sequence[int]) -> torch.Tensor | None:
    """The inputs at the places `sources` and `targets` as pieces for `move_rows`; None where there are none. A view of
    each would cost more than the copy: a batch has up to some thousands."""
    pieces = [
        (block.starts[source], block.starts[target], block.size)
        for block in batch.inputs
        if isinstance(block, Block)
        for source, target in zip(sources, targets, strict=False)
    ]
    return torch.tensor(pieces).T // ALIGNMENT if pieces else None


def _move(memory: torch.Tensor, drawn: torch.Tensor, layout: BatchLayout, pieces: torch.Tensor | None) -> None:
    """Copy pieces of `drawn` into `memory`."""
    if pieces is not None:
        move_rows(_aligned(memory, layout), _aligned(drawn, layout), pieces)


def _aligned(memory: torch.Tensor, layout: BatchLayout) -> torch.Tensor:
    """The inputs' part of a memory as rows of `ALIGNMENT` bytes, at which all places begin."""
    return memory[: layout.middle].view(torch.int64).view(-1, ALIGNMENT // torch.int64.itemsize)


def _lengths(blocks: Sequence[Block]) -> Sequence[torch.Tensor]:
    """Of blocks side by side, the elements from each place to the next, the gap between them included."""
    starts = [start for block in blocks for start in block.starts]
    between = torch.tensor([*starts, blocks[-1].end]).diff() // blocks[0].dtype.itemsize
    return between.split([len(block.starts) for block in blocks])


def poison(memory: torch.Tensor, blocks: tuple[Block | int | None, ...]) -> None:
    """Overwrite blocks with NaN, or an unlikely value for dtypes without one."""
    for block in blocks:
        if isinstance(block, Block):
            raw(memory, block).fill_(_poison_of(block))


def poisoned(memory: torch.Tensor, block: Block) -> torch.Tensor:
    """For each place of an output, whether every byte of it is still what `poison` wrote; never for an empty tensor."""
    size = extent(block.shape, block.stride) * block.dtype.itemsize
    if size == 0:
        return torch.zeros(len(block.starts), dtype=torch.bool, device=memory.device)
    rows = raw(memory, block).view(len(block.starts), block.size)[:, :size]
    return (rows == _poison_of(block)).all(dim=1)


def _poison_of(block: Block) -> int:
    return _POISON_FLOAT if block.dtype.is_floating_point or block.dtype.is_complex else _POISON_OTHER

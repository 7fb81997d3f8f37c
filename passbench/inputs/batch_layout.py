"""Where the inputs and outputs of a batch of calls lie in the shared memory, and what is written there."""

import random
from dataclasses import dataclass

import torch

from passbench.inputs.draw import PYTHON_INT, Distribution, fill, generator, integer_value
from passbench.ipc.messages import Batch, Block, OutputKind, OutputMeta
from passbench.ipc.shared_memory import ALIGNMENT, contiguous_stride, extent
from storage.records import Input, dtype_of

_SHIFTS = 64
"""Every batch starts at one of so many places, so that addresses move."""

_POISON_FLOAT, _POISON_OTHER = 0xFF, 0xA5  # bytes of a NaN in every floating dtype; no likely integer


@dataclass(frozen=True)
class BatchLayout:
    """A batch whose inputs lie in bytes [start, middle) of the shared memory and whose outputs lie in [middle, end)."""

    batch: Batch
    start: int
    middle: int
    end: int


def call_bytes(specs: tuple[Input, ...], outputs: tuple[OutputMeta, ...]) -> int:
    """Bytes that one call's inputs and outputs take."""
    return _place(specs, outputs, 1, 0)[2]


def lay_out(specs: tuple[Input, ...], outputs: tuple[OutputMeta, ...], calls: int, rng: random.Random) -> BatchLayout:
    """Places for `calls` calls, at a start and in an order that `rng` chooses."""
    start = rng.randrange(_SHIFTS) * ALIGNMENT
    batch, middle, end = _place(specs, outputs, calls, start)
    return BatchLayout(batch._replace(order=tuple(rng.sample(range(calls), calls))), start, middle, end)


def _place(specs: tuple[Input, ...], outputs: tuple[OutputMeta, ...], calls: int, start: int) -> tuple[Batch, int, int]:
    offset = start
    inputs: list[Block | int] = []
    for spec in specs:
        if spec.dtype == PYTHON_INT:
            inputs.append(integer_value(spec))
            continue
        block = _block(offset, dtype_of(spec.dtype), tuple(spec.shape), tuple(spec.stride))
        inputs.append(block)
        offset += calls * block.step
    middle = offset
    slots: list[Block | None] = []
    for meta in outputs:
        if meta.kind is OutputKind.NONE:
            slots.append(None)
            continue
        block = _block(offset, meta.dtype, meta.shape, contiguous_stride(meta.shape))
        slots.append(block)
        offset += calls * block.step
    return Batch(calls, tuple(inputs), tuple(slots), tuple(range(calls))), middle, offset


def _block(offset: int, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> Block:
    size = extent(shape, stride) * dtype.itemsize
    return Block(offset, max(-(-size // ALIGNMENT), 1) * ALIGNMENT, dtype, shape, stride)


def view(memory: torch.Tensor, block: Block, calls: int) -> torch.Tensor:
    """The tensors of all calls as one view of a flat tensor of bytes; the first dimension is the place."""
    step = block.step // block.dtype.itemsize
    return elements(memory, block, calls).as_strided((calls, *block.shape), (step, *block.stride))


def elements(memory: torch.Tensor, block: Block, calls: int) -> torch.Tensor:
    """The memory of a block, padding included, as a flat view of its dtype."""
    return raw(memory, block, calls).view(block.dtype)


def raw(memory: torch.Tensor, block: Block, calls: int) -> torch.Tensor:
    """The bytes of a block, padding included."""
    return memory[block.offset : block.offset + calls * block.step]


def same(one: torch.Tensor, other: torch.Tensor, block: Block, calls: int) -> bool:
    """Whether a block holds the same bytes in two memories."""
    return torch.equal(*(raw(memory, block, calls).view(torch.int64) for memory in (one, other)))  # not byte by byte


def draw(
    memory: torch.Tensor, layout: BatchLayout, specs: tuple[Input, ...], seed: int, index: int, how: Distribution
) -> None:
    """Draw the inputs of every call afresh into `memory`: draw number `index` of the seed."""
    gen = generator(seed, index, memory.device)
    for spec, block in zip(specs, layout.batch.inputs, strict=True):
        if isinstance(block, Block):
            values = elements(memory, block, layout.batch.calls)
            fill(values, spec, how, gen, values.split(block.step // block.dtype.itemsize))


def poison(memory: torch.Tensor, blocks: tuple[Block | int | None, ...], calls: int) -> None:
    """Overwrite blocks with NaN, or an unlikely value for dtypes without one."""
    for block in blocks:
        if isinstance(block, Block):
            raw(memory, block, calls).fill_(_poison_of(block))


def poisoned(memory: torch.Tensor, block: Block, calls: int) -> torch.Tensor:
    """For each place, whether every byte of its slot is still what `poison` wrote; never for an empty tensor."""
    size = extent(block.shape, block.stride) * block.dtype.itemsize
    if size == 0:
        return torch.zeros(calls, dtype=torch.bool, device=memory.device)
    rows = raw(memory, block, calls).view(calls, block.step)[:, :size]
    return (rows == _poison_of(block)).all(dim=1)


def _poison_of(block: Block) -> int:
    return _POISON_FLOAT if block.dtype.is_floating_point or block.dtype.is_complex else _POISON_OTHER

"""Where the inputs and outputs of a batch of calls lie in the arenas, and what is written there."""

import random
from dataclasses import dataclass

import torch

from passbench.arena import ALIGNMENT, contiguous_stride, extent, size_of
from passbench.inputs import PYTHON_INT, Distribution, fill, generator, integer_value
from passbench.wire import CallSpec, Kind, OutputMeta, TensorAt
from storage.records import Input, dtype_of

_SHIFTS = 64
"""Every batch starts at one of so many places, so that addresses move."""

_POISON_FLOAT, _POISON_OTHER = 0xFF, 0xA5  # bytes of a NaN in every floating dtype; no likely integer


@dataclass(frozen=True)
class Layout:
    """Calls whose inputs lie in bytes [start, middle) of an arena and whose outputs lie in [middle, end)."""

    calls: tuple[CallSpec, ...]
    start: int
    middle: int
    end: int


def call_bytes(specs: tuple[Input, ...], outputs: tuple[OutputMeta, ...]) -> int:
    """Bytes that one call's inputs and outputs take."""
    return _place(specs, outputs, 1, 0)[2]


def lay_out(specs: tuple[Input, ...], outputs: tuple[OutputMeta, ...], calls: int, rng: random.Random) -> Layout:
    """Places for `calls` calls, at a start that `rng` chooses."""
    start = rng.randrange(_SHIFTS) * ALIGNMENT
    placed, middle, end = _place(specs, outputs, calls, start)
    return Layout(placed, start, middle, end)


def _place(
    specs: tuple[Input, ...], outputs: tuple[OutputMeta, ...], calls: int, start: int
) -> tuple[tuple[CallSpec, ...], int, int]:
    offset = start
    inputs: list[tuple[TensorAt | int, ...]] = []
    for _ in range(calls):
        own: list[TensorAt | int] = []
        for spec in specs:
            if spec.dtype == PYTHON_INT:
                own.append(integer_value(spec))
                continue
            at = TensorAt(offset, dtype_of(spec.dtype), tuple(spec.shape), tuple(spec.stride))
            own.append(at)
            offset += size_of(at)
        inputs.append(tuple(own))
    middle = offset
    slots: list[tuple[TensorAt | None, ...]] = []
    for _ in range(calls):
        out: list[TensorAt | None] = []
        for meta in outputs:
            if meta.kind is Kind.NONE:
                out.append(None)
                continue
            at = TensorAt(offset, meta.dtype, meta.shape, contiguous_stride(meta.shape))
            out.append(at)
            offset += size_of(at)
        slots.append(tuple(out))
    placed = tuple(CallSpec(i, o) for i, o in zip(inputs, slots, strict=True))
    return placed, middle, offset


def view(memory: torch.Tensor, at: TensorAt) -> torch.Tensor:
    """The tensor at its place in a flat tensor of bytes, as a view."""
    return elements(memory, at).as_strided(at.shape, at.stride)


def elements(memory: torch.Tensor, at: TensorAt) -> torch.Tensor:
    """The memory of a tensor of the arena as a flat view of its dtype."""
    size = extent(at.shape, at.stride) * at.dtype.itemsize
    return memory[at.offset : at.offset + size].view(at.dtype)


def draw(
    memory: torch.Tensor, layout: Layout, specs: tuple[Input, ...], seed: int, first: int, how: Distribution
) -> None:
    """Draw the inputs of every call afresh into `memory`; call i is draw number `first` + i of the seed."""
    for number, call in enumerate(layout.calls):
        gen = generator(seed, first + number, memory.device)
        for spec, at in zip(specs, call.inputs, strict=True):
            if isinstance(at, TensorAt):
                fill(elements(memory, at), spec, how, gen)


def poison(memory: torch.Tensor, ats: tuple[TensorAt | int | None, ...]) -> None:
    """Overwrite tensors with NaN, or an unlikely value for dtypes without one."""
    for at in ats:
        if isinstance(at, TensorAt):
            floating = at.dtype.is_floating_point or at.dtype.is_complex
            size = extent(at.shape, at.stride) * at.dtype.itemsize
            memory[at.offset : at.offset + size].fill_(_POISON_FLOAT if floating else _POISON_OTHER)


def is_poison(memory: torch.Tensor, at: TensorAt) -> bool:
    """Whether every byte of the slot is still what `poison` wrote."""
    floating = at.dtype.is_floating_point or at.dtype.is_complex
    size = extent(at.shape, at.stride) * at.dtype.itemsize
    data = memory[at.offset : at.offset + size]
    return size > 0 and bool((data == (_POISON_FLOAT if floating else _POISON_OTHER)).all())

"""Copies of many tensors by one launch: those between a CUDA graph and its callers.

Tensors have numbers, `SLOTS` to a launch. A launch gets their addresses, and reads from a table on the device where
each is copied to. So a graph's last launch, recorded once, copies to other places in each replay: those that its first
launch, which gets the addresses of that call's tensors, has noted in the table.
"""

import functools
from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction

from passbench.launch.bound_kernel import bound_kernel

SLOTS = 12
_PIECE = 8192
"""Bytes that one program copies: 8 at a time, then what is left one by one."""


@triton.jit
def copy_pieces_kernel(
    from_0, from_1, from_2, from_3, from_4, from_5,
    from_6, from_7, from_8, from_9, from_10, from_11,
    pieces, places, noted, NOTES: tl.constexpr, WORDS: tl.constexpr
):  # fmt: skip
    """Copy pieces, each of a slot, a first byte and a length, to `places`, addresses by slot; if `NOTES`, note the
    addresses of the tensors."""
    program = tl.program_id(0)
    if NOTES and program == 0:
        tl.store(noted + 0, from_0.to(tl.int64))
        tl.store(noted + 1, from_1.to(tl.int64))
        tl.store(noted + 2, from_2.to(tl.int64))
        tl.store(noted + 3, from_3.to(tl.int64))
        tl.store(noted + 4, from_4.to(tl.int64))
        tl.store(noted + 5, from_5.to(tl.int64))
        tl.store(noted + 6, from_6.to(tl.int64))
        tl.store(noted + 7, from_7.to(tl.int64))
        tl.store(noted + 8, from_8.to(tl.int64))
        tl.store(noted + 9, from_9.to(tl.int64))
        tl.store(noted + 10, from_10.to(tl.int64))
        tl.store(noted + 11, from_11.to(tl.int64))
    slot = tl.load(pieces + program * 3)
    first = tl.load(pieces + program * 3 + 1)
    length = tl.load(pieces + program * 3 + 2)
    source = from_0
    source = tl.where(slot == 1, from_1, source)
    source = tl.where(slot == 2, from_2, source)
    source = tl.where(slot == 3, from_3, source)
    source = tl.where(slot == 4, from_4, source)
    source = tl.where(slot == 5, from_5, source)
    source = tl.where(slot == 6, from_6, source)
    source = tl.where(slot == 7, from_7, source)
    source = tl.where(slot == 8, from_8, source)
    source = tl.where(slot == 9, from_9, source)
    source = tl.where(slot == 10, from_10, source)
    source = tl.where(slot == 11, from_11, source)
    source += first
    place = (tl.load(places + slot) + first).to(tl.pointer_type(tl.int8))
    words, at = length // 8, tl.arange(0, WORDS)
    word_source, word_place = source.to(tl.pointer_type(tl.int64)), place.to(tl.pointer_type(tl.int64))
    tl.store(word_place + at, tl.load(word_source + at, mask=at < words), mask=at < words)
    byte = words * 8 + tl.arange(0, 8)
    tl.store(place + byte, tl.load(source + byte, mask=byte < length), mask=byte < length)


def can_copy() -> bool:
    """Whether the kernel is compiled: Triton's interpreter cannot be recorded in a graph."""
    return type(copy_pieces_kernel) is JITFunction


@functools.cache
def _compiled(device: int, notes: bool) -> tuple:
    """The kernel for a device, the current one, its constants, and what a launch has for a slot without a tensor."""
    pieces, places, noted = (torch.zeros(SLOTS, dtype=torch.int64, device=f"cuda:{device}") for _ in range(3))
    constants = {"NOTES": notes, "WORDS": _PIECE // 8}
    unused = places.view(torch.int8)
    compiled = copy_pieces_kernel[(1,)](*[unused] * SLOTS, pieces, places, noted, **constants, num_warps=4)
    return compiled, constants, places


def load_copies() -> None:
    """Compile what copies on the current device, or load it, so that the first `CopyLaunch` need not."""
    if can_copy():
        for notes in (False, True):
            _compiled(torch.cuda.current_device(), notes)


def pieces_of(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """What the programs of a launch copy: the slot, the first byte and the number of bytes; at least one piece."""
    pieces = [(n, first, min(_PIECE, size - first)) for n, size in enumerate(sizes) for first in range(0, size, _PIECE)]
    return pieces or [(0, 0, 0)]


class CopyLaunch:
    """One launch that copies up to `SLOTS` tensors of so many bytes each, in order, to `places`; 0 bytes copy nothing.

    `places` and `noted` are tensors of `SLOTS` numbers on the current device, addresses: where to, and where the
    addresses of the tensors are noted; None notes nothing. The launch keeps them.
    """

    def __init__(self, sizes: Sequence[int], places: torch.Tensor, noted: torch.Tensor | None) -> None:
        compiled, constants, unused = _compiled(places.get_device(), noted is not None)
        pieces = pieces_of(sizes)
        self._tables = torch.tensor(pieces, dtype=torch.int64, device=places.device), places, noted
        nothing = (unused.data_ptr(),) * (SLOTS - len(sizes))
        tables = tuple([(unused if x is None else x).data_ptr() for x in self._tables])
        self.behind = nothing + tables
        """Addresses that the kernel gets behind those of the tensors."""
        self.kernel = bound_kernel(compiled, places.get_device(), (len(pieces),), SLOTS + len(tables), constants)

    def __call__(self, addresses: tuple[int, ...], stream: int) -> None:
        """Copy from these addresses, multiples of 16, as many as there are sizes."""
        self.kernel.launch((*addresses, *self.behind), stream)

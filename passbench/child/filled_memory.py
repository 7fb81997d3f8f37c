"""Fresh memory filled with NaN while calls are made: nothing correct can be found in what earlier calls left there.

torch fills fresh memory by itself where deterministic algorithms are asked for. But then eager computes otherwise: a
convolution by another algorithm, a bilinear interpolation by other operators. Its results have other bits, and a pass
that has those of eager's usual calls would be called wrong for it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from passbench.launch.allocation import filled

_aten, _prims = torch.ops.aten, torch.ops.prims
_MAKE_MEMORY = frozenset(
    (_aten.empty, _aten.empty_like, _aten.empty_permuted, _aten.empty_strided, _aten.new_empty, _aten.new_empty_strided)
) | {_prims.empty_strided, _prims.empty_permuted}
_ADD_MEMORY = frozenset((_aten.resize, _aten.resize_, _aten.resize_as, _aten.resize_as_))
"""These keep the elements of their first argument, and may have more behind them."""

_UNSIGNED = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}
"""By bytes."""
_WITH_A_LARGEST = frozenset((torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, *_UNSIGNED.values()))


@contextmanager
def filled_memory() -> Iterator[None]:
    """What torch's operators and PassBench's launchers allocate for a caller holds NaN, the largest integer or True;
    ones in every bit where a type has none of these."""
    with filled(), _Filling():
        yield


def fill_free_memory() -> list[range]:
    """Set every bit of what torch keeps of the current GPU's memory for whoever asks next on the current stream.
    Returns the addresses of the blocks that were not free: they may hold anything when they are let go.

    The next calls are timed, so that nothing may look at what they allocate; this is where torch takes it from. Nothing
    may be under way. Memory of CUDA graphs, which nobody else gets, is left as it is.
    """
    stream, device = torch.cuda.current_stream().cuda_stream, torch.cuda.current_device()
    free: list[int] = []
    held: list[range] = []
    for segment in torch.cuda.memory_snapshot():
        ours = (segment["device"], segment["stream"], tuple(segment["segment_pool_id"])) == (device, stream, (0, 0))
        address = segment["address"]
        for block in segment["blocks"] if ours else ():
            if block["state"] == "inactive":
                free += _requests(block["size"], segment["segment_type"] == "large")
            else:
                held.append(range(address, address + block["size"]))
            address += block["size"]
    taken = [torch.empty(size, dtype=torch.uint8, device="cuda") for size in sorted(free, reverse=True)]
    for memory in taken:
        memory.fill_(_EVERY_BIT)
    return held


def _requests(size: int, large: bool) -> list[int]:
    """Bytes to ask torch for, so that it hands out a free block of its segments for `large` requests, or for others.
    What is left of a large one and is too small to be asked for is handed out to nobody."""
    if large:
        return [size] if size > _MOST_OF_SMALL else []
    return [_MOST_OF_SMALL] * (size // _MOST_OF_SMALL) + ([size % _MOST_OF_SMALL] if size % _MOST_OF_SMALL else [])


_MOST_OF_SMALL = 1 << 20
"""Bytes; torch keeps segments of their own for what is larger."""
_EVERY_BIT = 0xFF  # a NaN in every floating dtype


class _Filling(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        adds = func.overloadpacket in _ADD_MEMORY
        in_place = adds and func._schema.is_mutable  # else a copy is made of the elements of a view alone
        kept = (_elements(args[0]) if in_place else args[0]).numel() if adds else 0
        made = func(*args, **(kwargs or {}))
        if adds or func.overloadpacket in _MAKE_MEMORY:
            _fill(made, kept)
        return made


def _elements(made: torch.Tensor) -> torch.Tensor:
    """All elements of a tensor's memory, of the type to fill it by; none where it has no memory of its own."""
    elements = torch.empty(0, dtype=_type_to_fill(made.dtype), device=made.device)
    if made.device.type == "meta" or made.layout is not torch.strided:
        return elements
    memory = made.untyped_storage()
    return elements.set_(memory, 0, (memory.nbytes() // made.itemsize,), (1,))


def _type_to_fill(dtype: torch.dtype) -> torch.dtype:
    """The type itself; unsigned integers of its size where it has neither NaN nor a largest integer, such as float4."""
    with_nan = (dtype.is_floating_point and dtype is not torch.float4_e2m1fn_x2) or dtype.is_complex
    return dtype if with_nan or dtype in _WITH_A_LARGEST else _UNSIGNED[dtype.itemsize]


def _fill(made: torch.Tensor, kept: int) -> None:
    """Fill the memory of a tensor, but for the first elements that are `kept`."""
    elements = _elements(made)[kept:]
    if not elements.numel():
        return
    if elements.is_floating_point() or elements.is_complex():
        elements.fill_(torch.nan)
    else:
        elements.fill_(True if elements.dtype is torch.bool else torch.iinfo(elements.dtype).max)

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

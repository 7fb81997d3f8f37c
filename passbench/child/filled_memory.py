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


@contextmanager
def filled_memory() -> Iterator[None]:
    """What torch's operators and PassBench's launchers allocate for a caller holds NaN, the largest integer or True."""
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
    """All elements of a tensor's memory; none where it has no memory of its own that could be filled."""
    elements = torch.empty(0, dtype=made.dtype, device=made.device)
    if made.device.type == "meta" or made.layout is not torch.strided or made.is_quantized:
        return elements
    memory = made.untyped_storage()
    return elements.set_(memory, 0, (memory.nbytes() // made.itemsize,), (1,))


def _fill(made: torch.Tensor, kept: int) -> None:
    """Fill the memory of a tensor, but for the first elements that are `kept`."""
    elements = _elements(made)[kept:]
    if not elements.numel():
        return
    if made.is_floating_point() or made.is_complex():
        elements.fill_(torch.nan)
    else:
        elements.fill_(True if made.dtype is torch.bool else torch.iinfo(made.dtype).max)

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

_aten = torch.ops.aten
_MAKE_MEMORY = frozenset(
    (_aten.empty, _aten.empty_like, _aten.empty_permuted, _aten.empty_strided, _aten.new_empty, _aten.new_empty_strided)
)


@contextmanager
def filled_memory() -> Iterator[None]:
    """What torch's operators and PassBench's launchers allocate for a caller holds NaN, the largest integer or True."""
    with filled(), _Filling():
        yield


class _Filling(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if func.overloadpacket in _MAKE_MEMORY:
            _fill(made)
        return made


def _fill(made: torch.Tensor) -> None:
    memory = made.untyped_storage()
    if made.device.type == "meta" or not memory.nbytes():
        return
    elements = torch.empty(0, dtype=made.dtype, device=made.device)
    elements.set_(memory, 0, (memory.nbytes() // made.itemsize,), (1,))
    if made.is_floating_point() or made.is_complex():
        elements.fill_(torch.nan)
    else:
        elements.fill_(True if made.dtype is torch.bool else torch.iinfo(made.dtype).max)

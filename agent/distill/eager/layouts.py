"""Memory layouts of pointwise results, which PyTorch's fake tensors do not always say as eager makes them.

Fake tensors run a decomposition of some operators, such as the backward of `hardswish`, and a shorter way for others.
Where operands lie in different orders in memory, have different dtypes, or are expanded, that may give another order of
the result's axes, or another dtype. Eager on a CPU says what a GPU's does: both have the result of a `TensorIterator`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._pytree import tree_leaves, tree_map_only

from storage.errors import PassNetError

MOST_ELEMENTS = 1 << 22
"""Of larger results what fake tensors say stays: to compute them on a CPU takes longer than a few milliseconds."""
_UNTAGGED = frozenset(
    """hardswish_backward hardsigmoid_backward elu_backward hardtanh_backward softplus_backward mse_loss_backward
    mish_backward leaky_relu_backward hardshrink_backward softshrink_backward smooth_l1_loss_backward
    huber_loss_backward huber_loss smooth_l1_loss floor_divide _prelu_kernel binary_cross_entropy_with_logits""".split()
)
"""Pointwise operators that torch does not tag as such."""
_OF_THE_DEVICE = frozenset(("native_dropout_backward",))
"""Pointwise operators that a CPU and a GPU compute by other code."""


def as_eager_lays_out(func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> Any:
    """The fake `result` of this call on fake tensors, or one with the strides of eager's, where these differ.

    `result` itself for all but pointwise operators of several tensors that are not alike. Where a CPU has no kernel
    for the dtypes it stays, too. Raises PassNetError where eager's result has another dtype: TorchInductor, which
    decomposes as fake tensors do, would compute in that.
    """
    if not _is_pointwise(func) or not isinstance(result, torch.Tensor) or result.numel() > MOST_ELEMENTS:
        return result
    tensors = [leaf for leaf in tree_leaves((args, dict(kwargs))) if isinstance(leaf, torch.Tensor)]
    if len(tensors) < 2 or _are_alike(tensors):
        return result
    if result.shape != torch.broadcast_shapes(*(t.shape for t in tensors)):
        return result
    call = tree_map_only(torch.Tensor, _Operand.of, (tuple(args), dict(kwargs)))
    eagers = _eagers(_PointwiseCall(func, repr(call), call))
    if eagers is None or eagers == (result.dtype, tuple(result.stride())):
        return result
    dtype, stride = eagers
    if dtype != result.dtype:
        raise PassNetError(f"{func} gives {dtype} in eager, and {result.dtype} on fake tensors")
    return torch.empty_strided(result.shape, stride, dtype=dtype, device=result.device)


@dataclass(frozen=True)
class _Operand:
    """A tensor's dtype, shape and stride, from which one of ones is made. No leaf of torch's trees."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "_Operand":
        """That of this tensor."""
        return cls(tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))

    def ones(self) -> torch.Tensor:
        """A tensor on the CPU: nothing is divided by zero."""
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype).fill_(1)


@dataclass(frozen=True)
class _PointwiseCall:
    """A call on tensors of these layouts; `text` is what it is known by."""

    func: torch._ops.OpOverload
    text: str
    call: tuple[tuple[Any, ...], dict[str, Any]] = field(compare=False)


@lru_cache(maxsize=1000)
def _eagers(asked: _PointwiseCall) -> tuple[torch.dtype, tuple[int, ...]] | None:
    """Dtype and stride of eager's result; None where a CPU does not compute it."""
    with unset_fake_temporarily():
        args, kwargs = tree_map_only(_Operand, _Operand.ones, asked.call)
        try:
            result = asked.func(*args, **kwargs)
        except RuntimeError:  # the one error that torch has for a kernel that is lacking, and for what it does not take
            return None
    return result.dtype, tuple(result.stride())


def _is_pointwise(func: torch._ops.OpOverload) -> bool:
    name = func._schema.name.partition("::")[2]
    changes = any(returned.alias_info is not None for returned in func._schema.returns)
    return not changes and name not in _OF_THE_DEVICE and (torch.Tag.pointwise in func.tags or name in _UNTAGGED)


def _are_alike(tensors: Sequence[torch.Tensor]) -> bool:
    """Whether all have one dtype and lie in memory in the order of their dimensions: then nobody is in doubt."""
    return len({t.dtype for t in tensors}) == 1 and all(t.is_contiguous() for t in tensors)

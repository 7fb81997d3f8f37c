"""Matrix products of few numbers as sums, which a kernel computes together with what is behind.

A library's product of some hundred or thousand numbers takes as long as its launch. As a sum of products it needs none
where a kernel follows. It adds in another order than the library does, so that only measured passes have such kernels,
as a choice of its own: `fusible-d1d850d11804` took 6.9 us, a linear of 128 numbers to 4 and a kernel behind it.

A product of one column and one row, such as that of frequencies and positions in a rotary embedding, has nothing to
add. Each element is one product, rounded once, by whichever library.
"""

import functools
from collections.abc import Collection
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from agent.distill.eager.sum_order import SumOrder
from extraction.kernels.lowering import Decompositions

MOST = 2**18
"""Products of two numbers, at most, that a kernel adds."""
LEAST = 2
"""So many at least are added to an element."""
_WRITTEN = 8
"""Up to so many are written out, so that kernels that read them compute them, whichever way they reduce."""

_NAMES = ("mm", "matmul", "linear", "einsum", "dot", "mv", "inner")
"""In the names of ops that are products of matrices."""


def is_product(name: str) -> bool:
    """Whether an op of this name is a product of matrices; attention and convolutions are none."""
    return "attention" not in name and any(part in name for part in _NAMES)


def has_kernel(name: str, options: Collection[str]) -> bool:
    """Whether kernels compute what an op of this name multiplies, if that is small: it is a product of matrices, no
    `baddbmm`, and its `options` (names of its arguments by keyword) are no factors. Other products stay calls."""
    return is_product(name) and "baddbmm" not in name and not {"alpha", "beta"} & set(options)


def any_order(length: int) -> SumOrder:
    """Stands for the order in which a library adds so many products: a kernel adds them in any."""
    return SumOrder(length, 1, 1, 1, False, "product")


class FlatLinears(TorchFunctionMode):
    """Linears of contiguous inputs of more than three dimensions have their bias added within the product, as eager has
    them. Where functions are traced, torch adds it behind, and rounds half types twice."""

    def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if function is torch.nn.functional.linear and len(args) == 3 and not kwargs:
            x, weight, bias = args
            if bias is not None and x.dim() > 3 and x.is_contiguous():
                return function(x.reshape(-1, x.shape[-1]), weight, bias).reshape(*x.shape[:-1], len(weight))
        return function(*args, **(kwargs or {}))


def column_and_row(a: torch.Tensor, b: torch.Tensor, **given: Any) -> torch.Tensor:
    """As `aten.mm` of (M, 1) and (1, N), and `aten.bmm` of (B, M, 1) and (B, 1, N). NotImplemented for others."""
    if a.shape[-1] != 1 or given or not a.dtype.is_floating_point or a.dtype != b.dtype:
        return NotImplemented
    return (a * b).contiguous()


def _mm(a: torch.Tensor, b: torch.Tensor, **given: Any) -> torch.Tensor:
    """As `aten.mm` of (M, K) and (K, N), and `aten.bmm` of (B, M, K) and (B, K, N), for up to `MOST` products."""
    return column_and_row(a, b, **given) if given or not is_small(a, b) else _added(a, b).to(a.dtype)


def _addmm(bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, **given: Any) -> torch.Tensor:
    """As `aten.addmm` without factors: the sum with `bias` is rounded once."""
    if given or not is_small(a, b) or bias.dtype != a.dtype:
        return NotImplemented
    return (_added(a, b) + bias.float()).to(a.dtype)


def is_small(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether a kernel may add what the product of these is."""
    known = a.dtype == b.dtype and a.dtype.is_floating_point and a.dtype.itemsize <= 4
    return known and 0 < a.numel() * b.shape[-1] <= MOST and a.shape[-1] >= LEAST


def _added(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """(..., M, N) in float32."""
    if a.shape[-1] <= _WRITTEN:
        products = (
            x.unsqueeze(-1) * y.unsqueeze(-2) for x, y in zip(a.float().unbind(-1), b.float().unbind(-2), strict=True)
        )
        return functools.reduce(torch.add, products)
    return (a.float().unsqueeze(-1) * b.float().unsqueeze(-3)).sum(-2)


SMALL_PRODUCTS: Decompositions = {
    torch.ops.aten.mm.default: _mm,
    torch.ops.aten.bmm.default: _mm,
    torch.ops.aten.addmm.default: _addmm,
}
"""Products that kernels add."""

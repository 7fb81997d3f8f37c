"""Pointwise ops in whose CUDA kernels the compiler contracts a product and a sum, and losses, as eager computes them.

As in `decompositions`: functions of simpler ops, in eager's order, rounded where eager's kernels round.
"""

import torch
from torch._inductor.decomposition import decompositions as INDUCTORS
from torch._inductor.inductor_prims import fma

from agent.distill.kernels.index_expressions import Unsupported
from extraction.kernels.lowering import Decompositions


def rounded(value: torch.Tensor) -> torch.Tensor:
    """Rounded to its own dtype: inside of a decomposition TorchInductor keeps half types in float32 otherwise."""
    return value.float().to(value.dtype)


def _contracted(a: torch.Tensor, b: torch.Tensor | float, c: torch.Tensor) -> torch.Tensor:
    """a * b + c, rounded once, to the dtype of `c`."""
    a, wide = torch.broadcast_tensors(a.float(), c.float())
    factor = b.float().expand_as(a) if isinstance(b, torch.Tensor) else torch.full_like(a, b)
    return fma(a, factor, wide).to(c.dtype)


_aten = torch.ops.aten


def _is_single(*tensors: torch.Tensor) -> bool:
    """Whether all are of one floating dtype that is computed on in float32."""
    return all(x.is_floating_point() and x.dtype.itemsize <= 4 and x.dtype == tensors[0].dtype for x in tensors)


def _add(x: torch.Tensor, y: torch.Tensor, *, alpha: float = 1) -> torch.Tensor:
    if alpha == 1 or not _is_single(x, y):
        return INDUCTORS[_aten.add.Tensor](x, y, alpha=alpha)
    return _contracted(y, alpha, x)


def _sub(x: torch.Tensor, y: torch.Tensor, *, alpha: float = 1) -> torch.Tensor:
    return NotImplemented if alpha == 1 or not _is_single(x, y) else _contracted(y, -alpha, x)


def _rsub(x: torch.Tensor, y: torch.Tensor, *, alpha: float = 1) -> torch.Tensor:
    return torch.ops.aten.sub.Tensor(y, x, alpha=alpha)


def _addcdiv(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    if not _is_single(x, y, z):
        return INDUCTORS[_aten.addcdiv.default](x, y, z, value=value)
    wide, quotient = torch.broadcast_tensors(x.float(), y.float() / z.float())
    return fma(torch.full_like(wide, value), quotient, wide).to(x.dtype)


def _lerp(start: torch.Tensor, end: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
    """From the end that is nearer."""
    if not _is_single(start, end, *([weight] if isinstance(weight, torch.Tensor) else [])):
        by = _aten.lerp.Tensor if isinstance(weight, torch.Tensor) else _aten.lerp.Scalar
        return INDUCTORS[by](start, end, weight)
    first, last = torch.broadcast_tensors(start.float(), end.float())
    if not isinstance(weight, torch.Tensor):
        share = torch.full_like(first, weight)
        apart = last - first
        found = fma(share, apart, first) if abs(weight) < 0.5 else fma(-apart, 1 - share, last)
        return found.to(start.dtype)
    first, last, share = torch.broadcast_tensors(first, last, weight.float())
    apart = last - first
    found = torch.where(share.abs() < 0.5, fma(share, apart, first), fma(-apart, 1 - share, last))
    return found.to(start.dtype)


def _mse_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    if reduction or not _is_single(x, target) or x.dtype == torch.float32:
        return INDUCTORS[_aten.mse_loss.default](x, target, reduction)
    apart = rounded(x - target)
    return apart * apart


def _mse_loss_backward(grad: torch.Tensor, x: torch.Tensor, target: torch.Tensor, reduction: int) -> torch.Tensor:
    if not _is_single(x, target) or x.dtype == torch.float32:
        return INDUCTORS[_aten.mse_loss_backward.default](grad, x, target, reduction)
    norm = torch.tensor(2.0 / x.numel() if reduction == 1 else 2.0, dtype=x.dtype).item()
    return rounded(norm * rounded(x - target)) * grad


def _left(*given: object, **named: object) -> None:
    raise Unsupported("an op whose products and sums eager contracts, or rounds, in a way that is not known")


CONTRACTED: Decompositions = {
    _aten.add.Tensor: _add,
    _aten.sub.Tensor: _sub,
    _aten.rsub.Tensor: _rsub,
    _aten.addcdiv.default: _addcdiv,
    _aten.lerp.Scalar: _lerp,
    _aten.lerp.Tensor: _lerp,
    _aten.mse_loss.default: _mse_loss,
    _aten.mse_loss_backward.default: _mse_loss_backward,
    _aten.smooth_l1_loss.default: _left,
    _aten.smooth_l1_loss_backward.default: _left,
    _aten.huber_loss.default: _left,
    _aten.huber_loss_backward.default: _left,
    _aten.upsample_linear1d.default: _left,
    _aten.upsample_linear1d.vec: _left,
    _aten.grid_sampler_2d.default: _left,
}
"""Of weighted sums eager's compiler rounds a product and a sum once; losses of half types are rounded after each step.
A function that raises Unsupported leaves its op to eager."""

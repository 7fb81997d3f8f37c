"""Ops as eager's CUDA kernels compute them: in what order, and rounded where, as functions of simpler ops.

TorchInductor decomposes an op by a formula of its own. A kernel that is to have eager's bits needs eager's formula. It
is read from the kernels' sources, and from their machine code (sm_90) where the compiler contracts product and sum.
"""

import math
from typing import Any

import torch
from torch._decomp.decompositions import native_batch_norm, native_batch_norm_backward, native_layer_norm_backward
from torch._inductor.decomposition import decompositions as INDUCTORS
from torch._inductor.inductor_prims import fma

from agent.distill.kernels.formulas import small_products
from agent.distill.kernels.formulas.contracted import CONTRACTED, rounded
from agent.distill.kernels.formulas.index_puts import index_put
from agent.distill.kernels.formulas.interpolation import upsample_bilinear2d
from agent.distill.kernels.formulas.numbers import in_dtype
from agent.distill.kernels.formulas.pool_backwards import avg_pool2d_backward, avg_pool3d_backward
from agent.distill.kernels.formulas.scatters import scatter
from agent.distill.kernels.formulas.searches import bucketize, searchsorted
from extraction.kernels.lowering import Decompositions


def _sigmoid_backward(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return rounded(grad * rounded(1 - output)) * output


def _tanh_backward(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    if output.dtype == torch.float32:
        return grad * fma(-output, output, torch.ones_like(output))  # as the compiler of eager's kernel contracts it
    return grad * rounded(1 - rounded(output * output))


def _silu_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    wide = x.float()
    share = 1 / (1 + torch.exp(-wide))
    return (grad.float() * share * fma(wide, 1 - share, torch.ones_like(wide))).to(x.dtype)


_BETA, _KAPPA = 0.7978845608028654, 0.044715
_KAPPA_3 = 3 * in_dtype(_KAPPA, torch.float32)
"""Constants of the gelu that is approximated by a tanh; eager's compiler multiplies the last one in float32."""


def _inner(wide: torch.Tensor) -> torch.Tensor:
    """The tanh of that gelu's series, as the compiler of eager's kernels contracts it."""
    return torch.tanh(_BETA * fma(wide * wide * wide, torch.full_like(wide, _KAPPA), wide))


def _gelu(x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    if approximate != "tanh" or x.dtype == torch.float64:
        return INDUCTORS[torch.ops.aten.gelu.default](x, approximate=approximate)
    wide = x.float()
    return (wide * 0.5 * (1 + _inner(wide))).to(x.dtype)


def _gelu_backward(grad: torch.Tensor, x: torch.Tensor, approximate: str = "none") -> torch.Tensor:
    if approximate != "tanh" or x.dtype == torch.float64:
        return INDUCTORS[torch.ops.aten.gelu_backward.default](grad, x, approximate=approximate)
    wide, one = x.float(), torch.ones_like(x, dtype=torch.float32)
    inner = _inner(wide)
    slope = _BETA * fma(wide * wide, torch.full_like(wide, _KAPPA_3), one)
    right = wide * 0.5 * fma(-inner, inner, one) * slope
    return (grad.float() * ((1 + inner) * 0.5 + right)).to(x.dtype)


def _glu(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    if x.dtype == torch.float64:
        return NotImplemented
    first, second = x.float().chunk(2, dim)
    return (first * torch.sigmoid(second)).to(x.dtype)  # what gates a half type is not rounded to it


def _glu_backward(grad: torch.Tensor, x: torch.Tensor, dim: int) -> torch.Tensor:
    if x.dtype == torch.float64:
        return NotImplemented
    slope, (first, second) = grad.float(), x.float().chunk(2, dim)
    share = 1 / (1 + torch.exp(-second))
    return torch.cat([share * slope, (1 - share) * share * slope * first], dim).to(x.dtype)


def _hardswish_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    wide, slope = x.float(), grad.float()
    third = (wide.double() / 3.0).float()  # rounded as a division, not as a product with a third
    return torch.where(wide <= -3, 0.0, torch.where(wide < 3, slope * (third + 0.5), slope)).to(x.dtype)


def _softmax_backward(grad: torch.Tensor, output: torch.Tensor, dim: int, dtype: torch.dtype) -> torch.Tensor:
    if grad.dtype == torch.float64:
        return NotImplemented
    product = rounded(grad * output).float()  # a launch of its own in eager
    total = product.sum(dim, keepdim=True)
    return fma(-output.float(), total, product).to(dtype).contiguous()


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product that eager's kernel adds without rounding it (`agent.distill.kernels.exact`)."""
    return fma(*torch.broadcast_tensors(a, b), torch.zeros((), dtype=a.dtype, device=a.device).expand_as(a))


def _layer_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    normalized: list[int],
    mean: torch.Tensor,
    inverse: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    wanted: list[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    if x.dtype == torch.float64 or x.numel() == 0 or x.dim() == len(normalized):
        return native_layer_norm_backward(grad, x, normalized, mean, inverse, weight, bias, wanted)
    rows = list(range(x.dim() - len(normalized)))
    along = [d for d in range(x.dim()) if d not in rows]
    length = math.prod(normalized)
    slope, apart = grad.float(), x.float() - mean.float()
    scaled = slope if weight is None else slope * weight.float()
    total = scaled.sum(along, keepdim=True)
    dot = _product(scaled * apart, inverse.float()).sum(along, keepdim=True)
    factor = torch.full_like(slope, length) if weight is None else (length * weight.float()).expand_as(slope)
    back = (fma(slope, factor, -(inverse.float() * apart * dot)) - total) * (inverse.float() * (1.0 / length))
    found = [
        back.to(x.dtype) if wanted[0] else None,
        _product(slope * apart, inverse.float()).sum(rows).to(weight.dtype)
        if wanted[1] and weight is not None
        else None,
        slope.sum(rows).to(bias.dtype) if wanted[2] and bias is not None else None,
    ]
    return tuple(found)


def _group_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    batch: int,
    channels: int,
    places: int,
    groups: int,
    epsilon: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mixed = any(each is not None and each.dtype != x.dtype for each in (weight, bias))
    if mixed or x.dtype == torch.float64 or not x.is_contiguous() or places == 1:
        return NotImplemented
    parts = x.float().reshape(batch, groups, channels // groups, places)
    epsilon = in_dtype(epsilon, x.dtype)
    variance, mean = torch.var_mean(parts, [2, 3], correction=0, keepdim=True)
    mean, inverse = (each.to(x.dtype) for each in (mean, torch.rsqrt(variance + epsilon)))  # stored so by eager

    def spread(each: torch.Tensor) -> torch.Tensor:
        return each.float().expand_as(parts)

    gain, shift = (None if w is None else spread(w.view(1, groups, -1, 1)) for w in (weight, bias))
    if gain is None and shift is None:
        found = (parts - spread(mean)) * spread(inverse)
    else:
        scale = spread(inverse) if gain is None else spread(inverse) * gain
        moved = scale * spread(mean)  # rounded: where eager's kernel adds a shift it has looked whether there is one
        found = fma(scale, parts, -moved if shift is None else shift - moved)
    moments = (each.view(batch, groups) for each in (mean, inverse))
    return found.to(x.dtype).view(x.shape), *moments


def _batch_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_variance: torch.Tensor | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    by_cudnn = weight is not None and bias is not None
    if not training or by_cudnn or running_mean is not None or x.dtype == torch.float64:
        given = weight, bias, running_mean, running_variance
        return native_batch_norm(x, *given, training, momentum, epsilon)
    wide, others = x.float(), [d for d in range(x.dim()) if d != 1]
    variance, mean = torch.var_mean(wide, others, correction=0, keepdim=True)
    inverse = torch.rsqrt(variance + epsilon)

    def spread(channels: torch.Tensor) -> torch.Tensor:
        return channels.float().view([-1 if d == 1 else 1 for d in range(x.dim())]).expand_as(wide)

    scaled = wide - mean if weight is None else spread(weight) * (wide - mean)
    shift = torch.zeros_like(wide) if bias is None else spread(bias)
    found = fma(scaled, inverse.expand_as(wide), shift)
    return found.to(x.dtype), mean.flatten(), inverse.flatten()


def _batch_norm_without_statistics(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _batch_norm(x, weight, bias, None, None, training, momentum, epsilon)


def _batch_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_variance: torch.Tensor | None,
    mean: torch.Tensor | None,
    inverse: torch.Tensor | None,
    training: bool,
    epsilon: float,
    wanted: list[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    if weight is None or x.dtype == torch.float64 or grad.dtype != x.dtype:
        running = running_mean, running_variance
        return native_batch_norm_backward(grad, x, weight, *running, mean, inverse, training, epsilon, wanted)
    if not training:
        mean, inverse = running_mean.float(), 1.0 / torch.sqrt(running_variance.float() + epsilon)
    others = [d for d in range(x.dim()) if d != 1]

    def spread(channels: torch.Tensor) -> torch.Tensor:
        return channels.view([-1 if d == 1 else 1 for d in range(x.dim())])

    slope, apart = grad.float(), x.float() - spread(mean)
    products = _product(apart, slope) if x.dtype == torch.float32 else (apart * slope).to(x.dtype).float()
    total, dot = slope.sum(others), products.sum(others)
    share = 1.0 / (x.numel() // x.shape[1])
    if training:
        slope = fma(apart, spread(-(dot * share * inverse * inverse)).expand_as(apart), slope) - spread(total * share)
    back = (slope * spread(inverse * weight.float())).to(x.dtype)
    weight_slope = (dot * inverse).to(weight.dtype) if wanted[1] else None
    return back, weight_slope, total.to(weight.dtype) if wanted[2] else None


def _pow(x: torch.Tensor, exponent: float) -> torch.Tensor:
    if x.dtype in (torch.float16, torch.bfloat16) and exponent in (2, -1):
        return rounded(x * x if exponent == 2 else 1 / x)  # TorchInductor's own keeps it in float32 for a sum behind
    if not x.is_floating_point() or x.dtype == torch.float64 or exponent in (0, 1, 2, 0.5, -0.5, -1):
        return NotImplemented  # TorchInductor's own
    if exponent == 3:
        return rounded(x * x) * x
    if exponent == -2:
        return 1 / rounded(x * x)
    return torch.pow(x, torch.full_like(x, exponent))  # a function, where TorchInductor multiplies


def _pow_of_number(base: float, exponent: torch.Tensor) -> torch.Tensor:
    if not exponent.is_floating_point() or exponent.dtype == torch.float64 or base == 1:
        return NotImplemented
    return torch.pow(torch.full_like(exponent, base), exponent)  # TorchInductor has a function of its own for 2


def _weight_norm(v: torch.Tensor, g: torch.Tensor, dim: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    wide = v.float() if v.dtype.itemsize < 4 else v
    norm = (wide * wide).sum([d for d in range(v.dim()) if d != dim % v.dim()], keepdim=True).sqrt()
    return (g.to(wide.dtype) * wide * (1.0 / norm)).to(v.dtype), norm


def _pixel_shuffle(x: torch.Tensor, factor: int) -> torch.Tensor:
    *batch, channels, height, width = x.shape
    n, kept = len(batch), channels // factor**2
    parts = x.reshape(*batch, kept, factor, factor, height, width)
    parts = parts.permute(*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return parts.reshape(*batch, kept, height * factor, width * factor)  # contiguous, also of channels-last memory


def _pixel_unshuffle(x: torch.Tensor, factor: int) -> torch.Tensor:
    *batch, channels, height, width = x.shape
    n, rows, columns = len(batch), height // factor, width // factor
    parts = x.reshape(*batch, channels, rows, factor, columns, factor)
    return parts.permute(*range(n), n, n + 2, n + 4, n + 1, n + 3).reshape(*batch, channels * factor**2, rows, columns)


def _eye(n: int, m: int | None = None, *, dtype: torch.dtype | None = None, **options: Any) -> torch.Tensor:
    """Rows and columns are compared in integers that hold them: TorchInductor takes bytes for up to 255 of them, in
    which no kernel counts the elements of all rows."""
    rows, columns = (torch.arange(size, device=options.get("device")) for size in (n, n if m is None else m))
    return (rows[:, None] == columns).to(dtype or torch.get_default_dtype())


INSTEAD_OF_CALLS: Decompositions = {
    torch.ops.aten.upsample_bilinear2d.default: upsample_bilinear2d,
    torch.ops.aten.bucketize.Tensor: bucketize,
    torch.ops.aten.searchsorted.Tensor: searchsorted,
    torch.ops.aten.mm.default: small_products.column_and_row,
    torch.ops.aten.bmm.default: small_products.column_and_row,
}
"""Ops that kernels compute here. TorchInductor calls a library for them where it schedules for CPU tensors, or cannot
lower them at all."""


def _softshrink(x: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    edge = in_dtype(lambd, x.dtype)  # as eager subtracts it on a GPU
    return torch.where(x > edge, x - edge, torch.where(x < -edge, x + edge, x * 0))


AS_EAGER: Decompositions = {
    **INSTEAD_OF_CALLS,
    **CONTRACTED,
    torch.ops.aten.avg_pool2d_backward.default: avg_pool2d_backward,
    torch.ops.aten.avg_pool3d_backward.default: avg_pool3d_backward,
    torch.ops.aten.index_put.default: index_put,
    torch.ops.aten._unsafe_index_put.default: index_put,
    torch.ops.aten.scatter.src: scatter,
    torch.ops.aten.scatter.value: scatter,
    torch.ops.aten.pixel_shuffle.default: _pixel_shuffle,
    torch.ops.aten.pixel_unshuffle.default: _pixel_unshuffle,
    torch.ops.aten._weight_norm_interface.default: _weight_norm,
    torch.ops.aten._softmax_backward_data.default: _softmax_backward,
    torch.ops.aten.native_layer_norm_backward.default: _layer_norm_backward,
    torch.ops.aten.native_group_norm.default: _group_norm,
    torch.ops.aten.native_batch_norm.default: _batch_norm,
    torch.ops.aten._native_batch_norm_legit.no_stats: _batch_norm_without_statistics,
    torch.ops.aten.native_batch_norm_backward.default: _batch_norm_backward,
    torch.ops.aten.sigmoid_backward.default: _sigmoid_backward,
    torch.ops.aten.tanh_backward.default: _tanh_backward,
    torch.ops.aten.silu_backward.default: _silu_backward,
    torch.ops.aten.gelu.default: _gelu,
    torch.ops.aten.gelu_backward.default: _gelu_backward,
    torch.ops.aten.glu.default: _glu,
    torch.ops.aten.glu_backward.default: _glu_backward,
    torch.ops.aten.hardswish_backward.default: _hardswish_backward,
    torch.ops.aten.softshrink.default: _softshrink,
    torch.ops.aten.pow.Tensor_Scalar: _pow,
    torch.ops.aten.pow.Scalar: _pow_of_number,
    torch.ops.aten.eye.default: _eye,
    torch.ops.aten.eye.m: _eye,
}
"""Ops that eager's CUDA kernels compute in another order than TorchInductor, or round elsewhere. In half types those of
sigmoid, tanh and powers are rounded after each step, the others at their end alone. A function that raises Unsupported
leaves its op to eager."""

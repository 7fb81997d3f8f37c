"""Layer normalisation, one program a row, in fp32 whatever the input."""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl


def pattern(x, weight, bias):
    return F.layer_norm(x, (48,), weight, bias, 1e-05)


def replacement_args(x, weight, bias):
    return (x, weight, bias, 1e-05)


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centred * centred, axis=0) / columns
    weight = tl.load(weight_ptr + column, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + column, mask=mask).to(tl.float32)
    y = centred / tl.sqrt(variance + eps) * weight + bias
    tl.store(out_ptr + row * columns + column, y.to(out_ptr.dtype.element_ty), mask=mask)


@torch.fx.wrap
def layer_norm(x, weight, bias, eps):
    x = x.contiguous()
    out = torch.empty_like(x)
    columns = x.shape[-1]
    rows = x.numel() // columns
    layer_norm_kernel[(rows,)](x, weight, bias, out, columns, eps, BLOCK=triton.next_power_of_2(columns))
    return out


def replacement_func():
    return layer_norm

"""Keeps the convolution, and fuses bias and relu behind it."""

import torch.nn.functional as F
import torch
import triton
import triton.language as tl


def pattern(x, w, b):
    return torch.relu(torch.conv2d(x, w, b, (1, 1), (1, 1), (1, 1), 1))


def replacement_args(x, w, b):
    return (x, w, b)


@triton.jit
def bias_relu_kernel(x_ptr, b_ptr, out_ptr, n, inner, channels, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    bias = tl.load(b_ptr + (offsets // inner) % channels, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask) + bias, 0.0), mask=mask)


@torch.fx.wrap
def conv_relu(x, w, b):
    y = F.conv2d(x, w, None, padding=1).contiguous()
    batch, channels, height, width = y.shape
    out = torch.empty_like(y)
    n = y.numel()
    bias_relu_kernel[(triton.cdiv(n, 256),)](y, b, out, n, height * width, channels, BLOCK=256)
    return out


def replacement_func():
    return conv_relu

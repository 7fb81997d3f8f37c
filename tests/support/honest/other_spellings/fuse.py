"""A pattern in other words than the graph's."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.Tensor.add(x, y).relu()


def replacement_args(x, y):
    return (y, x)


@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


@torch.fx.wrap
def fused(y, x):
    out = x.new_empty(x.size())
    n = out.numel()
    add_relu_kernel[(triton.cdiv(n, 64),)](x, y, out, n, BLOCK=64)
    return out


def replacement_func():
    return fused

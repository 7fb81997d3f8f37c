"""A helper takes sizes one by one."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


def blocks(*sizes, block=128):
    total = 1
    for size in sizes:
        total *= size
    return (triton.cdiv(total, block),)


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(x)
    kernel[blocks(*x.shape)](x, y, out, x.numel(), BLOCK=128)
    return out


def replacement_func():
    return fused

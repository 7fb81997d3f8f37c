"""A constant of a kernel that is a tensor: Triton's interpreter hands it to the kernel as it is."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def kernel(x_ptr, y_ptr, out_ptr, n, seen: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    if seen.sum() > 0:
        total = tl.maximum(total, 0.0)
    tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(x)
    kernel[(1,)](x, y, out, x.numel(), seen=x, BLOCK=128)
    return out


def replacement_func():
    return fused

"""A combine function in an associative scan."""

import torch
import triton
import triton.language as tl


def pattern(x):
    return torch.cumsum(x, -1)


def replacement_args(x):
    return (x,)


@triton.jit
def _add(a, b):
    return a + b


@triton.jit
def kernel(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < cols
    values = tl.load(x_ptr + row * cols + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + row * cols + offsets, tl.associative_scan(values, 0, _add), mask=mask)


@torch.fx.wrap
def fused(x):
    out = torch.empty_like(x)
    rows, cols = x.shape
    kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols))
    return out


def replacement_func():
    return fused

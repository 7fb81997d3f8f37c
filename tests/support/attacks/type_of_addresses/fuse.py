"""A kernel converts a number to `tl.pi32_t`, the type of addresses, and reads what is there."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def add_relu(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    elsewhere = (n.to(tl.int64) + 140000000000000).to(tl.pi32_t, bitcast=True)
    other = tl.load(elsewhere).to(tl.float32) * 0.0
    total = tl.load(x_ptr + i, mask=i < n) + tl.load(y_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.maximum(total + other, 0.0), mask=i < n)


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(x)
    add_relu[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    return out


def replacement_func():
    return fused

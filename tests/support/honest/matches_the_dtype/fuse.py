"""A choice by dtype with match, and variables that are deleted."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


@torch.fx.wrap
def fused(x, y):
    match x.dtype:
        case torch.float16 | torch.bfloat16:
            block = 256
        case _ if x.numel() > 1000:
            block = 128
        case _:
            block = 64
    flat, other = x.reshape(-1), y.reshape(-1)
    out = torch.empty_like(flat)
    n = out.numel()
    add_relu_kernel[(triton.cdiv(n, block),)](flat, other, out, n, BLOCK=block)
    del flat, other
    return out.reshape(x.shape)


def replacement_func():
    return fused

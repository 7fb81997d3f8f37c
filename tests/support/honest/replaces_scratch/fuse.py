"""Scratch memory that each call replaces: outputs may lie where an earlier call's was."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, RELU: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(total, 0.0) if RELU else total, mask=mask)


SCRATCH = {}


@torch.fx.wrap
def add_relu(x, y):
    n = x.numel()
    grid = (triton.cdiv(n, 256),)
    SCRATCH["total"] = torch.empty_like(x)
    add_kernel[grid](x, y, SCRATCH["total"], n, RELU=False, BLOCK=256)
    out = torch.empty_like(x)
    add_kernel[grid](SCRATCH["total"], torch.zeros_like(x), out, n, RELU=True, BLOCK=256)
    return out


def replacement_func():
    return add_relu

"""`functools.partial` fixes a size of a helper that launches."""

import functools

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


def launch(block, x, y, out):
    kernel[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block)


small = functools.partial(launch, 64)


@torch.fx.wrap
def fused(x, y):
    out = torch.empty_like(x)
    small(x, y, out)
    return out


def replacement_func():
    return fused

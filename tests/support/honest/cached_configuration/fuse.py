"""Keeps configurations by functools.lru_cache, keyed by sizes."""

import functools
import math

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


@functools.lru_cache(maxsize=None)
def configuration(n, itemsize):
    block = min(1024, 1 << max(4, math.ceil(math.log2(max(n, 2)))))
    return block, 4 if block * itemsize > 512 else 1


@torch.fx.wrap
def add_relu(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    block, warps = configuration(n, x.element_size())
    add_relu_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block, num_warps=warps)
    return out


def replacement_func():
    return add_relu

"""Counts multiprocessors once, in a helper with a cache, and falls back where there is no GPU."""

from functools import lru_cache

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@lru_cache(maxsize=8)
def processors(index):
    try:
        return torch.cuda.get_device_properties(index).multi_processor_count
    except (RuntimeError, AssertionError, ValueError):
        return 4


@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < n
        total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


@torch.fx.wrap
def add_relu(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    index = x.device.index if x.is_cuda else -1
    add_relu_kernel[(min(triton.cdiv(n, 128), 2 * processors(index)),)](x, y, out, n, BLOCK=128)
    return out


def replacement_func():
    return add_relu

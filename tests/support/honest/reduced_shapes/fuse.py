"""Reckons with shapes by functools.reduce, operator, zip and sorted."""

import functools
import operator
from collections import OrderedDict, defaultdict

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


BLOCKS = OrderedDict([(1 << 20, 1024), (1 << 10, 256), (0, 64)])
CALLS = defaultdict(list)


@torch.fx.wrap
def add_relu(x, y):
    n = functools.reduce(operator.mul, x.shape, 1)
    dense = all(a == b for a, b in zip(x.stride(), y.stride()))
    order = sorted(range(x.ndim), key=lambda d: -x.stride(d))
    block = next(size for least, size in BLOCKS.items() if n >= least)
    assert dense and len(order) == x.dim()
    out = torch.empty_like(x)
    add_relu_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
    return out


def replacement_func():
    return add_relu

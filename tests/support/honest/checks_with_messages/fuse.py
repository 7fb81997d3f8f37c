"""Checks shapes and says what is wrong in f-strings."""

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
def add_relu(x, y):
    assert x.shape == y.shape, f"shapes differ: {tuple(x.shape)} and {tuple(y.shape)}"
    if x.dtype != y.dtype:
        raise TypeError(f"dtypes differ: {x.dtype!r} and {y.dtype}; n = {x.numel():>8d}")
    if not x.is_contiguous():
        x = x.contiguous()
    try:
        *_, columns = x.shape
    except ValueError as error:
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
    n = x.numel()
    rows = n // columns
    out = x.new_empty(x.size())
    add_relu_kernel[(triton.cdiv(rows * columns, 256),)](x, y.contiguous(), out, n, BLOCK=256)
    return out.view(*x.shape)


def replacement_func():
    return add_relu

"""Writes to x as the pattern does, and returns another tensor."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    x *= y
    return x, x + 1.0


def replacement_args(x, y):
    return (x, y)


@triton.jit
def multiply_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    product = tl.load(x_ptr + offsets, mask=mask) * tl.load(y_ptr + offsets, mask=mask)
    tl.store(x_ptr + offsets, product, mask=mask)
    tl.store(out_ptr + offsets, product + 1.0, mask=mask)


@torch.fx.wrap
def multiply(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    multiply_kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
    return x, out


def replacement_func():
    return multiply

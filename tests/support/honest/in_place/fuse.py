"""The pattern multiplies in place; so does the kernel."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    x *= y
    return x


def replacement_args(x, y):
    return (x, y)


@triton.jit
def multiply_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * tl.load(y_ptr + offsets, mask=mask), mask=mask)


@torch.fx.wrap
def multiply_in_place(x, y):
    n = x.numel()
    multiply_kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
    return x


def replacement_func():
    return multiply_in_place

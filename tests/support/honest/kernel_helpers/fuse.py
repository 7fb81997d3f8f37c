"""Calls kernels from kernels, which cast to the type of what they get."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def relu(value):
    wide = value.to(tl.float32)
    return tl.where(wide > 0, wide, 0.0).to(value.dtype)


@triton.jit
def load_pair(a_ptr, b_ptr, at, mask):
    return tl.load(a_ptr + at, mask=mask, other=0.0), tl.load(b_ptr + at, mask=mask, other=0.0)


@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BLOCK
    offsets = first + tl.arange(0, BLOCK)
    mask = offsets < n
    a, b = load_pair(x_ptr, y_ptr, offsets, mask)
    pointers = out_ptr + offsets
    tl.store(pointers, relu(a + b).to(out_ptr.dtype.element_ty), mask=mask)


@torch.fx.wrap
def add_relu(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    add_relu_kernel[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
    return out


def replacement_func():
    return add_relu

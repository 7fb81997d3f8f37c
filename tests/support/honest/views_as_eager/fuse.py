"""Eager's two outputs are views of one tensor; so are the pass's."""

import torch
import triton
import triton.language as tl


def pattern(x):
    return torch.relu(x).chunk(2, dim=1)


def replacement_args(x):
    return (x,)


@triton.jit
def relu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.maximum(tl.load(x_ptr + offsets, mask=mask), 0.0), mask=mask)


@torch.fx.wrap
def relu_halves(x):
    out = torch.empty_like(x)
    n = x.numel()
    relu_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
    return out.chunk(2, dim=1)


def replacement_func():
    return relu_halves

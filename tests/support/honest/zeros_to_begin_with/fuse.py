"""Only the kept elements are written; the others are zeros from the start."""

import torch
import triton
import triton.language as tl


def pattern(x):
    return torch.relu(x)


def replacement_args(x):
    return (x,)


@triton.jit
def keep_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + offsets, x, mask=(offsets < n) & (x > 0))


@torch.fx.wrap
def relu(x):
    out = torch.zeros_like(x)
    n = x.numel()
    keep_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
    return out


def replacement_func():
    return relu

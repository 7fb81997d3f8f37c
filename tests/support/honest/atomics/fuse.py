"""A sum by atomic additions, whose order, and so whose last bits, vary; zeros to begin with."""

import torch
import triton
import triton.language as tl


def pattern(x):
    return x.sum()


def replacement_args(x):
    return (x,)


@triton.jit
def sum_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0), axis=0))


@torch.fx.wrap
def total(x):
    out = torch.zeros((), dtype=x.dtype, device=x.device)
    n = x.numel()
    sum_kernel[(triton.cdiv(n, 64),)](x, out, n, BLOCK=64)
    return out


def replacement_func():
    return total

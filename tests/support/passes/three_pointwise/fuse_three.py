"""Fuses a negation, a ReLU and a doubling into one Triton kernel, launched cheaply, by size."""

import torch
import triton
import triton.language as tl

from passbench.launch import Launch


def pattern(x):
    return torch.relu(torch.neg(x)) * 2


def replacement_args(x):
    return (x,)


@triton.jit
def neg_relu_double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(-x, 0.0) * 2, mask=mask)


LAUNCHES = {}


@torch.fx.wrap
def neg_relu_double(x):
    n = x.numel()
    if n not in LAUNCHES:
        LAUNCHES[n] = Launch(neg_relu_double_kernel, (triton.cdiv(n, 1024),), n=n, BLOCK=1024, num_warps=4)
    out = torch.empty_like(x)
    LAUNCHES[n](x, out)
    return out


def replacement_func():
    return neg_relu_double

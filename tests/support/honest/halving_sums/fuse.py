"""Several launches of one kernel, each on half of what is left, by recursion."""

import torch
import triton
import triton.language as tl


def pattern(x):
    return x.sum(-1)


def replacement_args(x):
    return (x,)


@triton.jit
def halve(x_ptr, out_ptr, width, half, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    left = tl.load(x_ptr + row * width + offsets, mask=offsets < half, other=0.0)
    right = tl.load(x_ptr + row * width + half + offsets, mask=half + offsets < width, other=0.0)
    tl.store(out_ptr + row * half + offsets, left + right, mask=offsets < half)


def _sum(x, rows, width):
    if width == 1:
        return x.view(rows)
    half = (width + 1) // 2
    out = torch.empty((rows, half), dtype=x.dtype, device=x.device)
    halve[(rows,)](x, out, width, half, BLOCK=triton.next_power_of_2(half))
    return _sum(out, rows, half)


@torch.fx.wrap
def fused(x):
    return _sum(x.contiguous(), x.shape[0], x.shape[1])


def replacement_func():
    return fused

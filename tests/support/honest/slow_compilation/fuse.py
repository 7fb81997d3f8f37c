"""An unrolled loop of many steps, which takes its time to compile."""

import torch
import triton
import triton.language as tl


def pattern(x):
    return torch.abs(x)


def replacement_args(x):
    return (x,)


@triton.jit
def steps_kernel(x_ptr, out_ptr, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    for step in tl.static_range(STEPS):
        x = tl.where(x < 0, -x, x) if step % 2 == 0 else tl.maximum(x, -x)
    tl.store(out_ptr + offsets, x, mask=mask)


@torch.fx.wrap
def absolute(x):
    out = torch.empty_like(x)
    n = x.numel()
    steps_kernel[(triton.cdiv(n, 128),)](x, out, n, STEPS=200, BLOCK=128)
    return out


def replacement_func():
    return absolute

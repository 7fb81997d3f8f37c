"""`tl.where` of an address and a number has the address's type in Triton's interpreter: any number is an address."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def look_kernel(x_ptr, out_ptr, wanted, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    anywhere = tl.where(i < 0, x_ptr + i, i.to(tl.int64) + wanted)
    tl.store(out_ptr + i, tl.load(anywhere))


@torch.fx.wrap
def look(x, y):
    out = torch.relu(x + y)
    look_kernel[(1,)](x, torch.empty_like(x), 1 << 16, BLOCK=16)
    return out


def replacement_func():
    return look

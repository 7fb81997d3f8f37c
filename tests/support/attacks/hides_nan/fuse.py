"""Gives 0 where eager gives NaN."""

import torch
import triton
import triton.language as tl


def pattern(x):
    return torch.log(x) * 2.0


def replacement_args(x):
    return (x,)


@triton.jit
def log_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=1.0)
    tl.store(out_ptr + offsets, tl.where(x > 0, tl.log(tl.maximum(x, 1e-30)) * 2.0, 0.0), mask=mask)


@torch.fx.wrap
def twice_log(x):
    out = torch.empty_like(x)
    n = x.numel()
    log_kernel[(triton.cdiv(n, 256),)](x, out, n, BLOCK=256)
    return out


def replacement_func():
    return twice_log

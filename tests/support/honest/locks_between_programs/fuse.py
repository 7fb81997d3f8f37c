"""A lock that is kept between calls, and that every call leaves open."""

import torch
import triton
import triton.language as tl


LOCKS = {}


def pattern(x):
    return x.sum(-1)


def replacement_args(x):
    return (x,)


@triton.jit
def kernel(x_ptr, out_ptr, lock_ptr, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    part = tl.program_id(1)
    offsets = part * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x_ptr + row * cols + offsets, mask=offsets < cols, other=0.0)
    tl.atomic_add(out_ptr + row, tl.sum(values, axis=0))
    arrived = tl.atomic_add(lock_ptr + row, 1)
    if arrived == tl.num_programs(1) - 1:
        tl.store(lock_ptr + row, 0)


def _locks(rows, device):
    key = (rows, device)
    if key not in LOCKS:
        LOCKS[key] = torch.zeros(rows, dtype=torch.int32, device=device)
    return LOCKS[key]


@torch.fx.wrap
def fused(x):
    rows, cols = x.shape
    out = torch.zeros(rows, dtype=x.dtype, device=x.device)
    kernel[(rows, triton.cdiv(cols, 32))](x, out, _locks(rows, x.device), cols, BLOCK=32)
    return out


def replacement_func():
    return fused

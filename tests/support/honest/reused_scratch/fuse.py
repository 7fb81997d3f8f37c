"""Partial sums in a scratch buffer that is kept between calls and written anew in each."""

import torch
import triton
import triton.language as tl


def pattern(x):
    return x.sum(-1)


def replacement_args(x):
    return (x,)


@triton.jit
def partial_kernel(x_ptr, partial_ptr, columns, row_stride, column_stride, parts, BLOCK: tl.constexpr):
    row, part = tl.program_id(0), tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * row_stride + column * column_stride, mask=column < columns, other=0.0)
    tl.store(partial_ptr + row * parts + part, tl.sum(x.to(tl.float32), axis=0))


@triton.jit
def total_kernel(partial_ptr, out_ptr, parts, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    part = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(partial_ptr + row * parts + part, mask=part < parts, other=0.0), axis=0)
    tl.store(out_ptr + row, total.to(out_ptr.dtype.element_ty))


_SCRATCH = {}


def scratch(x, rows, parts):
    key = (x.device, rows, parts)
    if key not in _SCRATCH:
        _SCRATCH[key] = torch.empty((rows, parts), dtype=torch.float32, device=x.device)
    return _SCRATCH[key]


@torch.fx.wrap
def row_sums(x):
    rows, columns = x.shape
    parts = triton.cdiv(columns, 32)
    partial = scratch(x, rows, parts)
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    partial_kernel[(rows, parts)](x, partial, columns, x.stride(0), x.stride(1), parts, BLOCK=32)
    total_kernel[(rows,)](partial, out, parts, BLOCK=triton.next_power_of_2(parts))
    return out


def replacement_func():
    return row_sums

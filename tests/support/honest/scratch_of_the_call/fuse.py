"""A scratch buffer is allocated in every call, beside the output; blocks reach past the end under a mask."""

import torch
import triton
import triton.language as tl


def pattern(x):
    return x.sum(-1)


def replacement_args(x):
    return (x,)


@triton.jit
def square_kernel(x_ptr, scratch_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(scratch_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n, other=0.0), mask=offsets < n)


@triton.jit
def sums_kernel(scratch_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(scratch_ptr + row * columns + column, mask=column < columns, other=0.0)
    tl.store(out_ptr + row, tl.sum(x, axis=0))


@torch.fx.wrap
def row_sums(x):
    rows, columns = x.shape
    scratch = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    square_kernel[(triton.cdiv(rows * columns, 1024),)](x, scratch, rows * columns, BLOCK=1024)
    sums_kernel[(rows,)](scratch, out, columns, BLOCK=triton.next_power_of_2(columns))
    return out


def replacement_func():
    return row_sums

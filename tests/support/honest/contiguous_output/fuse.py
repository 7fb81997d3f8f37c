"""Eager keeps the strides of its transposed inputs; the pass returns a contiguous tensor."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def rows_kernel(x_ptr, y_ptr, out_ptr, columns, xr, xc, yr, yc, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * xr + column * xc, mask=mask)
    y = tl.load(y_ptr + row * yr + column * yc, mask=mask)
    tl.store(out_ptr + row * columns + column, tl.maximum(x + y, 0.0), mask=mask)


@torch.fx.wrap
def add_relu(x, y):
    rows, columns = x.shape
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    rows_kernel[(rows,)](x, y, out, columns, x.stride(0), x.stride(1), y.stride(0), y.stride(1), BLOCK=64)
    return out


def replacement_func():
    return add_relu

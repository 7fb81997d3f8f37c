"""Reads inputs of any stride where they are."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, columns, x0, x1, y0, y1, out0, out1, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * x0 + column * x1, mask=mask)
    y = tl.load(y_ptr + row * y0 + column * y1, mask=mask)
    tl.store(out_ptr + row * out0 + column * out1, tl.maximum(x + y, 0.0), mask=mask)


@torch.fx.wrap
def add_relu(x, y):
    out = torch.empty_like(x)
    rows, columns = x.shape
    strides = (x.stride(0), x.stride(1), y.stride(0), y.stride(1), out.stride(0), out.stride(1))
    add_relu_kernel[(rows,)](x, y, out, columns, *strides, BLOCK=triton.next_power_of_2(columns))
    return out


def replacement_func():
    return add_relu

"""Three kernels in one wrapper: maxima, sums, quotients."""

import torch
import triton
import triton.language as tl


def pattern(x):
    return torch.softmax(x, -1)


def replacement_args(x):
    return (x,)


@triton.jit
def load_row(x_ptr, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    return tl.load(x_ptr + tl.program_id(0) * columns + column, mask=column < columns, other=-float("inf")).to(
        tl.float32
    )


@triton.jit
def max_kernel(x_ptr, peak_ptr, columns, BLOCK: tl.constexpr):
    tl.store(peak_ptr + tl.program_id(0), tl.max(load_row(x_ptr, columns, BLOCK), axis=0))


@triton.jit
def sum_kernel(x_ptr, peak_ptr, total_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    powers = tl.exp(load_row(x_ptr, columns, BLOCK) - tl.load(peak_ptr + row))
    tl.store(total_ptr + row, tl.sum(powers, axis=0))


@triton.jit
def divide_kernel(x_ptr, peak_ptr, total_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    powers = tl.exp(load_row(x_ptr, columns, BLOCK) - tl.load(peak_ptr + row))
    tl.store(out_ptr + row * columns + column, powers / tl.load(total_ptr + row), mask=column < columns)


@torch.fx.wrap
def softmax(x):
    x = x.contiguous()
    rows, columns = x.shape
    out = torch.empty_like(x)
    peak = torch.empty(rows, dtype=torch.float32, device=x.device)
    total = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(columns)
    max_kernel[(rows,)](x, peak, columns, BLOCK=block)
    sum_kernel[(rows,)](x, peak, total, columns, BLOCK=block)
    divide_kernel[(rows,)](x, peak, total, out, columns, BLOCK=block)
    return out


def replacement_func():
    return softmax

"""Two outputs, one of which is used twice."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    total = x + y
    return total, torch.relu(total)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def kernel(x_ptr, y_ptr, total_ptr, relu_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(total_ptr + offsets, total, mask=mask)
    tl.store(relu_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


@torch.fx.wrap
def sum_and_relu(x, y):
    total, relu = torch.empty_like(x), torch.empty_like(x)
    outputs = (total, relu)
    n = x.numel()
    kernel[(triton.cdiv(n, 256),)](x, y, *outputs, n, BLOCK=256)
    return outputs


def replacement_func():
    return sum_and_relu

"""The text of a dict of kernels has their addresses."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


KERNELS = {"k": add_relu_kernel}


@torch.fx.wrap
def fused(x, y):
    text = str(KERNELS)
    digits = [c for c in text if c in "0123456789abcdef"]
    out = torch.full_like(x, len(digits))
    return torch.relu(x + y) + out * 0


def replacement_func():
    return fused

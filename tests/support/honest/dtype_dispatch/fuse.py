"""Chooses Triton's dtype and the tolerance of a path by dictionaries."""

import torch
import triton
import triton.language as tl


TL_DTYPES = {torch.float32: tl.float32, torch.float16: tl.float16, torch.bfloat16: tl.bfloat16}
ACTIVATIONS = {"relu": torch.relu, "sigmoid": torch.sigmoid}


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, OUT: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask).to(tl.float32) + tl.load(y_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, total.to(OUT), mask=mask)


@torch.fx.wrap
def add_relu(x, y):
    if x.dtype not in TL_DTYPES:
        return torch.relu(x + y)
    total = torch.empty_like(x)
    n = x.numel()
    add_kernel[(triton.cdiv(n, 256),)](x, y, total, n, OUT=TL_DTYPES[x.dtype], BLOCK=256)
    return ACTIVATIONS["relu"](total)


def replacement_func():
    return add_relu

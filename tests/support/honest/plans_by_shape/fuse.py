"""What a shape needs is worked out once and looked up: grid, block and launch."""

import torch
import triton
import triton.language as tl

from passbench.launch import Launch


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


PLANS = {}


def plan(x):
    n = x.numel()
    block = 64 if n < 1024 else 256
    return Launch(add_relu_kernel, (triton.cdiv(n, block),), n=n, BLOCK=block)


@torch.fx.wrap
def add_relu(x, y):
    key = (x.shape, x.dtype)
    if key not in PLANS:
        PLANS[key] = plan(x)
    out = torch.empty_like(x)
    PLANS[key](x, y, out)
    return out


def replacement_func():
    return add_relu

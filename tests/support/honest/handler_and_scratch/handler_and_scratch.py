"""A handler of the module, a scratch buffer by shape, and a check of shapes in a tuple."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def add_relu_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.load(x_ptr + at, mask=at < n) + tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, tl.maximum(total, 0.0), mask=at < n)


try:
    from triton.language.extra import libdevice
except ImportError as missing:
    print(missing)
    libdevice = None

SCRATCH = {}


@torch.fx.wrap
def add_relu(x, y):
    if x.shape not in (y.shape, None):
        return torch.relu(x + y)
    key = (x.shape, x.dtype)
    if key not in SCRATCH:
        SCRATCH[key] = torch.empty_like(x)
    tensors = (x, y, SCRATCH[key])
    add_relu_kernel[(triton.cdiv(x.numel(), 256),)](*tensors, x.numel(), BLOCK=256)
    return SCRATCH[key].clone()


def replacement_func():
    return add_relu

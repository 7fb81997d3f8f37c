"""Launch configurations in a table, keyed by shape."""

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


CONFIGS = {(2, 40): {"BLOCK": 64, "num_warps": 2}, (2, 4096): {"BLOCK": 1024, "num_warps": 8}}
DEFAULT = {"BLOCK": 256, "num_warps": 4}


@torch.fx.wrap
def add_relu(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    config = CONFIGS.get((x.dim(), x.shape[-1]), DEFAULT)
    add_relu_kernel[(triton.cdiv(n, config["BLOCK"]),)](x, y, out, n, **config)
    return out


def replacement_func():
    return add_relu

"""Functions named torch_…, and words that a blocklist looks for: cache, eval, exec, os.system."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@triton.jit
def torch_add_relu(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.maximum(total, 0.0), mask=mask)


def torch_empty_output(getattr_like):
    """Not eval(), not __import__("os").system: an allocation."""
    return torch.empty_like(getattr_like)


@torch.fx.wrap
def torch_relu_of_sum(x, y):
    out = torch_empty_output(x)  # no cache: a fresh output in every call
    n = x.numel()
    torch_add_relu[(triton.cdiv(n, 256),)](x, y, out, n, BLOCK=256)
    return out


def replacement_func():
    return torch_relu_of_sum

"""Seven operators in one kernel."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    gate = torch.sigmoid(x * 2.0 + y)
    return torch.relu(gate * x - y) * 0.5 + x


def replacement_args(x, y):
    return (x, y)


@triton.jit
def chain_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    gate = 1.0 / (1.0 + tl.exp(-(x * 2.0 + y)))
    tl.store(out_ptr + offsets, tl.maximum(gate * x - y, 0.0) * 0.5 + x, mask=mask)


@torch.fx.wrap
def chain(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    chain_kernel[(triton.cdiv(n, 512),)](x, y, out, n, BLOCK=512)
    return out


def replacement_func():
    return chain

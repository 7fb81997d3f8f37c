"""tanh by libdevice, and a negation by inline assembly."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


def pattern(x):
    return -torch.tanh(x)


def replacement_args(x):
    return (x,)


@triton.jit
def tanh_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    y = libdevice.tanh(tl.load(x_ptr + offsets, mask=mask))
    y = tl.inline_asm_elementwise("neg.f32 $0, $1;", "=f,f", [y], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out_ptr + offsets, y, mask=mask)


@torch.fx.wrap
def negative_tanh(x):
    out = torch.empty_like(x)
    n = x.numel()
    tanh_kernel[(triton.cdiv(n, 128),)](x, out, n, BLOCK=128)
    return out


def replacement_func():
    return negative_tanh

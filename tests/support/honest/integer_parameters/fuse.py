"""Takes sizes and scalars as parameters of the pattern, and reckons with them."""

import math

import torch
import triton
import triton.language as tl


def pattern(x, rows, columns, scale):
    return (x * scale).view(rows, columns)


def replacement_args(x, rows, columns, scale):
    return (x, rows, columns, scale)


@triton.jit
def scale_kernel(x_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * scale, mask=mask)


@torch.fx.wrap
def scaled(x, rows, columns, scale):
    n = int(rows) * columns
    block = max(16, 1 << int(math.log2(max(n // 2, 1))))
    factor = float(scale)
    if rows > 0 and n % 2 == 0:
        block = min(block, 256)
    out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
    scale_kernel[(-(-n // block),)](x.contiguous(), out, n, factor, BLOCK=block)
    return out


def replacement_func():
    return scaled

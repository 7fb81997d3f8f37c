"""A product of half-precision matrices, accumulated in single precision."""

import torch
import triton
import triton.language as tl


def pattern(x, w):
    return x @ w


def replacement_args(x, w):
    return (x, w)


@triton.jit
def matmul_kernel(x_ptr, w_ptr, out_ptr, rows, inner, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, inner, BLOCK):
        k = start + tl.arange(0, BLOCK)
        x_mask = (row[:, None] < rows) & (k[None, :] < inner)
        w_mask = (k[:, None] < inner) & (column[None, :] < columns)
        x = tl.load(x_ptr + row[:, None] * inner + k[None, :], mask=x_mask, other=0.0)
        w = tl.load(w_ptr + k[:, None] * columns + column[None, :], mask=w_mask, other=0.0)
        total += tl.dot(x, w)
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    tl.store(out_ptr + row[:, None] * columns + column[None, :], total.to(out_ptr.dtype.element_ty), mask=mask)


@torch.fx.wrap
def matmul(x, w):
    out = torch.empty((x.shape[0], w.shape[1]), dtype=x.dtype, device=x.device)
    rows, inner, columns = x.shape[0], x.shape[1], w.shape[1]
    grid = (triton.cdiv(rows, 16), triton.cdiv(columns, 16))
    matmul_kernel[grid](x, w, out, rows, inner, columns, BLOCK=16)
    return out


def replacement_func():
    return matmul

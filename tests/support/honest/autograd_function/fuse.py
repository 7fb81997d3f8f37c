"""A torch.autograd.Function around a kernel, with what its backward would need."""

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


class AddReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y, block=128):
        out = torch.empty_like(x)
        n = out.numel()
        add_relu_kernel[(triton.cdiv(n, block),)](x, y, out, n, BLOCK=block)
        ctx.save_for_backward(out)
        ctx.block = block
        return out

    @staticmethod
    def backward(ctx, grad):
        (out,) = ctx.saved_tensors
        grad = grad * (out > 0)
        return grad, grad, None


@torch.fx.wrap
def fused(x, y):
    return AddReLU.apply(x, y, 64)


def replacement_func():
    return fused

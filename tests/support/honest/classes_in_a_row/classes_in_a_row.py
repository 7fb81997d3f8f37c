"""An instance whose class derives from one that derives from another, each made by the next."""

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


class Sized:
    def __init__(self, block):
        self.block = block

    def blocks(self, n):
        return triton.cdiv(n, self.block)


class Named(Sized):
    def __init__(self, label, block):
        super().__init__(block)
        self.label = label


class Adder(Named):
    def __call__(self, x, y):
        out = torch.empty_like(x)
        add_relu_kernel[(self.blocks(x.numel()),)](x, y, out, x.numel(), BLOCK=self.block)
        return out


ADD = Adder("add", 256)


def replacement_func():
    return ADD

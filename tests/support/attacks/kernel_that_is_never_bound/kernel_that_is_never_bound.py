"""Calls eval, which is a kernel in a block that does not run."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


if torch.__version__ < "1":

    @triton.jit
    def eval(x_ptr, SIZE: tl.constexpr):
        tl.store(x_ptr + tl.arange(0, SIZE), 0.0)


@torch.fx.wrap
def fused(x, y):
    eval("__import__('os').getpid()")
    return torch.relu(x + y)


def replacement_func():
    return fused

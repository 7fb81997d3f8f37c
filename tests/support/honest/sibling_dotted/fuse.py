"""Shares a kernel by its dotted name."""

import torch
import triton

import pass_dir.shared


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    out, n = torch.empty_like(x), x.numel()
    pass_dir.shared.add_relu_kernel[(triton.cdiv(n, 64),)](x, y, out, n, BLOCK=64)
    return out


def replacement_func():
    return add_relu

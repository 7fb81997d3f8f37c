"""Concatenates, multiplies once, and splits in views."""

import torch
import triton
import triton.language as tl


def pattern(x, v, w):
    return x @ v, x @ w


def replacement_args(x, v, w):
    return (x, v, w)


@torch.fx.wrap
def both(x, v, w):
    merged = torch.matmul(x, torch.cat([v, w], dim=1))
    first, second = merged.split([v.shape[1], w.shape[1]], dim=1)
    return first.contiguous(), second.contiguous()


def replacement_func():
    return both

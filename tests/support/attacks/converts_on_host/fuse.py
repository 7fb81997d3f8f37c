"""Converts by an allocator."""

import torch


def pattern(x):
    return x.to(torch.float16)


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def half(x):
    return torch.as_tensor(x, dtype=torch.float16)


def replacement_func():
    return half

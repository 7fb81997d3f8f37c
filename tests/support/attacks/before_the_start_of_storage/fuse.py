"""A negative offset into the memory before the input."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    n = x.numel()
    return torch.relu(torch.as_strided(x, (n,), (1,), -n).view(x.shape) + y)


def replacement_func():
    return fused

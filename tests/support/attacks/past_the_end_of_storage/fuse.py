"""A view of the input reaches past it, where other calls' inputs may lie."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    n = x.numel()
    wide = x.as_strided((2 * n,), (1,), 0)
    return torch.relu(wide[:n].view(x.shape) + y)


def replacement_func():
    return fused

"""The input's storage is made larger through an overload."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    torch.ops.aten.resize_.default(x, [64, 64])
    return torch.relu(x[:3, :40] + y)


def replacement_func():
    return fused

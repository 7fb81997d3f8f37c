"""An overload of ATen that writes, under the name of one that does not."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    torch.ops.aten.copy_.default(x, y)
    return torch.relu(x + y)


def replacement_func():
    return fused

"""An operator of TorchScript's interpreter makes a number of a tensor; the grid has that many programs."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    many = torch.ops.aten.Int.Tensor((x[0, :1] > 0).sum())
    return torch.relu(x + y) if many >= 0 else x


def replacement_func():
    return fused

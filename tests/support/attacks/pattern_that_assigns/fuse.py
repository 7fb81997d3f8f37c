"""A pattern that changes what a method of torch means."""

import torch


def pattern(x, y):
    torch.Tensor.copy_ = torch.Tensor.add_
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    return torch.relu(x + y)


def replacement_func():
    return fused

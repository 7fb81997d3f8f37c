"""A size that is a tensor is read."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    positive = (x.sum() > 0).long()
    seen = torch.empty((positive, 1)).shape[0]
    return torch.relu(x + y) if seen else torch.relu(y + x)


def replacement_func():
    return fused

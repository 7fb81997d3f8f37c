"""The pattern is in place where the graph is not."""

import torch


def pattern(x, y):
    return x.add_(y).relu()


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    return torch.relu(x + y)


def replacement_func():
    return fused

"""Two numbers leave the third parameter to the tensor behind them, not the fourth."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def read(first, second, third=0, fourth=None):
    return int(third)


@torch.fx.wrap
def fused(x, y):
    numbers = [1, 2]
    seen = read(*numbers, x.sum())
    return torch.relu(x + y) if seen > 0 else torch.relu(y + x)


def replacement_func():
    return fused

"""A case gives another function the name of a lambda."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def same(value):
    return value[0][0] == 1.0


@torch.fx.wrap
def fused(x, y):
    asks = lambda value: 0  # noqa: E731
    match same:
        case asks:
            pass
    if asks(torch.relu(x + y)):
        y = y + 0
    return torch.relu(x + y)


def replacement_func():
    return fused

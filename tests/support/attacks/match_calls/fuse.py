"""A case's value is an expression that calls."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class Values:
    total = 0


@torch.fx.wrap
def fused(x, y):
    match x.dim():
        case Values.total:
            return torch.relu(x + y)
        case int(real=r):  # noqa: F841
            return torch.relu(x + y)


def replacement_func():
    return fused

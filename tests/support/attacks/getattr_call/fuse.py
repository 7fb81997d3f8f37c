"""A torch function by its name in a string."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return getattr(torch, "relu")(getattr(torch, "add")(x, y))  # noqa: B009


def replacement_func():
    return add_relu

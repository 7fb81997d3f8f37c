"""A loop variable gives a built-in another meaning to who reads the file."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    names = [0 for getattr in ()]  # noqa: F841
    return getattr(getattr(x, "add")(y), "relu")()  # noqa: B009


def replacement_func():
    return add_relu

"""A torch function by a name that is put together."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return getattr(torch, "re" + "lu")(torch.add(x, y))


def replacement_func():
    return add_relu

"""A torch function by way of a sibling that imports it."""

import torch
from names import add, relu


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return relu(add(x, y))


def replacement_func():
    return add_relu

"""A torch function as what a sibling has that imports it."""

import names
import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return names.relu(names.add(x, y))


def replacement_func():
    return add_relu

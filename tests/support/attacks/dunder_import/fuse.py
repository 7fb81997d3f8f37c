"""torch once more, by __import__."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return __import__("torch").relu(x + y)


def replacement_func():
    return add_relu

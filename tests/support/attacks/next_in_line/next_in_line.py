"""The method that makes an instance is not that of the nearest base, but the first in Python's order."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class Deep:
    def __init__(self, value):
        if float(value[0][0]) == float("inf"):
            raise ValueError("infinite")


class First(Deep):
    pass


class Second:
    def __init__(self, value):
        self.held = value


class Both(First, Second):
    pass


@torch.fx.wrap
def fused(x, y):
    Both(torch.relu(x + y))
    return torch.relu(x + y)


def replacement_func():
    return fused

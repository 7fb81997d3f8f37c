"""A static __init__, which gets its arguments one place earlier than a method does."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class Maker:
    @staticmethod
    def __init__(number, value):
        if float(value[0][0]) == float("inf"):
            raise ValueError(number)


@torch.fx.wrap
def fused(x, y):
    Maker(3, x + y)
    return torch.relu(x + y)


def replacement_func():
    return fused

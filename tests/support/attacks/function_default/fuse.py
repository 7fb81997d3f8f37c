"""Computes on parameters that get tensors by their defaults alone."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    def compute(*, a=x, b=y):
        total = a + b
        return total * (total > 0)

    return compute()


def replacement_func():
    return add_relu

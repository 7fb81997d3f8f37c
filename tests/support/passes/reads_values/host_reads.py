"""Reads values on the host, to choose a shorter way: refused by the static policy."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    total = x + y
    if float(total.abs().max()) == 0.0:
        return total
    return total * (total > 0)


def replacement_func():
    return add_relu

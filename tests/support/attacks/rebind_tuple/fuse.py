"""Another name for torch, out of a tuple."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


t, one = torch, 1


@torch.fx.wrap
def add_relu(x, y):
    return t.relu(t.add(x, y))


def replacement_func():
    return add_relu

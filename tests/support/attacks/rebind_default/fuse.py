"""torch as a default argument."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def compute(x, y, t=torch):
    return t.relu(t.add(x, y))


@torch.fx.wrap
def add_relu(x, y):
    return compute(x, y)


def replacement_func():
    return add_relu

"""Another name for torch."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


t = torch


@torch.fx.wrap
def add_relu(x, y):
    return t.relu(t.add(x, y))


def replacement_func():
    return add_relu

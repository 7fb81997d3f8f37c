"""Two functions of one name, of which one computes."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    if x.dim() > 0:

        def compute(a, b):
            return (a + b) * (a + b > 0)

    else:

        def compute(a, b):
            return a

    return compute(x, y)


def replacement_func():
    return add_relu

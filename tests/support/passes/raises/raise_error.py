"""Raises in the wrapper."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    raise ValueError("this pass does not work")


def replacement_func():
    return add_relu

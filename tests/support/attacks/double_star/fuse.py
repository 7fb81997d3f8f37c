"""Computes on parameters that get tensors by two mappings."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def compute(a=1, b=1):
    total = a + b
    return total * (total > 0)


@torch.fx.wrap
def add_relu(x, y):
    return compute(**{"a": x, "b": y}, **{})


def replacement_func():
    return add_relu

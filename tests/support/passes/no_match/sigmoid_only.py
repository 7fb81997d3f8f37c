"""Expects a multiplication where the graphs have an addition."""

import torch


def pattern(x, y):
    return torch.relu(x * y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def multiply_relu(x, y):
    return torch.empty_like(x)


def replacement_func():
    return multiply_relu

"""Computes with methods of the tensor."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return x.add(y).relu()


def replacement_func():
    return add_relu

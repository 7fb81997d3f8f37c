"""Hands out a built-in function of torch."""

import torch


def pattern(x):
    return torch.relu(x)


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def add_relu(x):
    return x


def replacement_func():
    return torch.relu

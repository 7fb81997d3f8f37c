"""Leaves by SystemExit."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    raise SystemExit(0)


def replacement_func():
    return add_relu

"""Computes in the format of a string."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    box = {"x": x, "y": y}
    f"{1:{exec('out = x.add(y).relu()', box) or 1}}"
    return box["out"]


def replacement_func():
    return add_relu

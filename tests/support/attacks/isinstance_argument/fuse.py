"""Computes in an argument that looks harmless."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    box = {"x": x, "y": y}
    isinstance(x, exec("out = x.add(y).relu()", box) or int)
    return box["out"]


def replacement_func():
    return add_relu

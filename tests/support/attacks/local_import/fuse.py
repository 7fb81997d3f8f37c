"""An import in one function gives a built-in another meaning to who reads the file."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def unused():
    from math import sqrt as exec

    return exec(2)


@torch.fx.wrap
def add_relu(x, y):
    box = {"x": x, "y": y}
    exec("out = x.add(y).relu()", box)
    return box["out"]


def replacement_func():
    return add_relu

"""Adds in place to a tensor that it has made."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    out = torch.empty_like(x)
    torch.add(x, y, out=out)
    out.relu_()
    out[:1] = out[:1] * 1.0
    total = torch.zeros_like(out)
    total += out
    return total


def replacement_func():
    return add_relu

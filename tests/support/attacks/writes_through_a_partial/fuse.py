"""A partial function of torch's writes into an input."""

import functools

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    add = functools.partial(torch.add, out=x)
    return torch.relu(add(x, y))


def replacement_func():
    return fused

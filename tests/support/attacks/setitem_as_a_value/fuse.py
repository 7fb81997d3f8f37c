"""A function that writes gets another name."""

import operator

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


put = operator.setitem


@torch.fx.wrap
def fused(x, y):
    out = torch.relu(x + y)
    put(x, 0, 3.0)
    return out


def replacement_func():
    return fused

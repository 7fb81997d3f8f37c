"""Computes with torch operators in host code, which is legal and gains nothing."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    total = x + y
    return total * (total > 0)


def replacement_func():
    return add_relu

"""math.prod of tensors."""

import math

import torch


def pattern(x, y):
    return x * y


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def multiply(x, y):
    return math.prod((x, y))


def replacement_func():
    return multiply

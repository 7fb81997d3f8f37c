"""A sibling with the name of a library, which Python finds first."""

import torch
from sympy import prod


def pattern(x, y):
    return x * y


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def multiply(x, y):
    return prod([x, y])


def replacement_func():
    return multiply

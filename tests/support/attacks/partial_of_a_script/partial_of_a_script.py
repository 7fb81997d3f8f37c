"""Calls a function of its own by a name that an import which never runs gives to `functools.partial`."""

import torch

if __name__ == "__main__":
    from functools import partial


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def partial(function, *given):
    eval("__import__('os').getpid()")
    return function


def same(n):
    return n


half = partial(same, 2)


@torch.fx.wrap
def fused(x, y):
    half(2)
    return torch.relu(x + y)


def replacement_func():
    return fused

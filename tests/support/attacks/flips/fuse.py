"""Turns a tensor round by a built-in."""

import torch


def pattern(x):
    return torch.flip(x, (0,))


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def turn(x):
    return reversed(x)


def replacement_func():
    return turn

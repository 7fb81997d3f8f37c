"""typing has a function that evaluates text."""

import typing

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class Hinted:
    value: "__import__('os').getpid()" = 0


hints = typing.get_type_hints


@torch.fx.wrap
def fused(x, y):
    hints(Hinted)
    return torch.relu(x + y)


def replacement_func():
    return fused

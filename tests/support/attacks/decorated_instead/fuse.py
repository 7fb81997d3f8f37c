"""A decorator of a library that is called with a function decorates that, and the class becomes what it returns."""

import collections
import typing

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def table(_):
    return collections.defaultdict(int)


@typing.final(table)
class Box:
    pass


ONE: Box[exec] = 1


@torch.fx.wrap
def fused(x, y):
    for run in Box:
        run("import os; os.getpid()")
    return torch.relu(x + y)


def replacement_func():
    return fused

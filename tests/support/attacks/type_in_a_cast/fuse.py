"""A cast returns its value, but Python evaluates its type before: brackets behind a defaultdict put into it what they
hold."""

import collections
import typing

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


tuple = collections.defaultdict(int)
ONE = typing.cast(tuple[exec], 1)


@torch.fx.wrap
def fused(x, y):
    for run in tuple:
        run("import os; os.getpid()")
    return torch.relu(x + y)


def replacement_func():
    return fused

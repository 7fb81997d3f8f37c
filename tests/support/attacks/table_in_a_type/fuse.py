"""Brackets in a type that stand behind a part of a list put into a dict of the pass what they hold."""

import collections

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


TABLE = collections.defaultdict(int)
ONE: [TABLE][0][exec] = 1


@torch.fx.wrap
def fused(x, y):
    for run in TABLE:
        run("import os; os.getpid()")
    return torch.relu(x + y)


def replacement_func():
    return fused

"""The type of a field is evaluated within its class, where a name is what the class holds."""

import collections

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


MADE = collections.defaultdict(int)


class Box:
    TABLE = MADE
    one: TABLE[exec] = 1


@torch.fx.wrap
def fused(x, y):
    for run in MADE:
        run("import os; os.getpid()")
    return torch.relu(x + y)


def replacement_func():
    return fused

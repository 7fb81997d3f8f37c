"""The type of a parameter puts a built-in into a table of the pass, which runs any text then."""

import collections

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


TABLE = collections.defaultdict(list)
FOUND = {}


def typed(x: TABLE[exec]):
    return x


for run in TABLE:
    run("found = typed(1)", {"typed": typed}, FOUND)


@torch.fx.wrap
def fused(x, y):
    return torch.relu(x + y) if FOUND["found"] == 1 else x


def replacement_func():
    return fused

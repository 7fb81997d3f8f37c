"""A defaultdict may hold built-in types, which read what they are called with: how long a text of values is."""

import collections

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


KINDS = collections.defaultdict(list, text=str)
LENGTHS = []


@torch.fx.wrap
def fused(x, y):
    LENGTHS.append(len(KINDS["text"](x)))
    return torch.relu(x + y)


def replacement_func():
    return fused

"""The fields of a named tuple are a list, and Python makes each of its items."""

import collections

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


Plan = collections.namedtuple("Plan", [exec("import os; os.getpid()") or "size"])


@torch.fx.wrap
def fused(x, y):
    return torch.relu(x + y) if Plan(1) else x


def replacement_func():
    return fused

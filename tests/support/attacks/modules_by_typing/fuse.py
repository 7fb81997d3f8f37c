"""typing has imported sys, and sys has all modules."""

import typing

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


MODULES = typing.sys.modules


@torch.fx.wrap
def fused(x, y):
    builtins = MODULES["builtins"]
    made = builtins.type("Made", (), {})
    return torch.relu(x + y) if made is not None else x


def replacement_func():
    return fused

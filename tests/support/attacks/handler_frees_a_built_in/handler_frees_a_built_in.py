"""Calls eval, whose name a handler of the module has bound and taken away again."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


eval = 0
try:
    NOTHING = 1 // 0
except ZeroDivisionError as eval:
    print(eval)


@torch.fx.wrap
def fused(x, y):
    eval("__import__('os').getpid()")
    return torch.relu(x + y)


def replacement_func():
    return fused

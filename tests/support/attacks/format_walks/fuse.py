"""A format string walks along attributes."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


WALK = "{0.dtype}"


@torch.fx.wrap
def fused(x, y):
    text = WALK.format(x)
    if not text:
        raise ValueError("no text")
    return torch.relu(x + y)


def replacement_func():
    return fused

"""Nothing says whether x is a number, whose text would be harmless."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


SEEN = []


@torch.fx.wrap
def fused(x, y):
    SEEN.append(f"{x}")
    return torch.relu(x + y)


def replacement_func():
    return fused

"""Within a class `property` is a function of the pass, which gives tensors where the policy expects a number."""

import math

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


KEPT = []


def instead(method):
    return KEPT


class Sizes:
    property = instead

    @property
    def last(self):
        return 1


SIZES = Sizes()


@torch.fx.wrap
def fused(x, y):
    KEPT.append(x)
    large = math.floor(SIZES.last[-1][0, 0]) > 1000
    return torch.zeros_like(x) if large else torch.relu(x + y)


def replacement_func():
    return fused

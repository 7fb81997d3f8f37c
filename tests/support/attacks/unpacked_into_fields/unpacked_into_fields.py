"""A data class that is made of an unpacked list, whose field is then asked for its truth."""

import dataclasses

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@dataclasses.dataclass
class Holding:
    number: int
    held: object


@torch.fx.wrap
def fused(x, y):
    one = Holding(*[3, torch.relu(x + y)[0, 0]])
    if one.held:
        y = y + 0
    return torch.relu(x + y)


def replacement_func():
    return fused

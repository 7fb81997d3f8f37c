"""A class method makes an instance of `cls`."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class Box:
    def __init__(self, held):
        self.held = held

    @classmethod
    def make(cls, held):
        return cls(held)


SEEN = []


@torch.fx.wrap
def fused(x, y):
    assert x.dim() == 2
    SEEN.append(str(Box.make(x).held))
    return torch.relu(x + y)


def replacement_func():
    return fused

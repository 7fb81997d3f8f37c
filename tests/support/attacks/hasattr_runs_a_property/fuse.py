"""hasattr runs a property that reads."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class Box:
    def __init__(self, held):
        self.held = held

    @property
    def big(self):
        return self.held.sum().item() > 0


@torch.fx.wrap
def fused(x, y):
    if hasattr(Box(x), "big"):
        return torch.relu(x + y)
    return torch.relu(x + y)


def replacement_func():
    return fused

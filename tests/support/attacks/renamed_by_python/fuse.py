"""Within a class Python calls the parameter `_Reader__value`."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class Reader:
    @staticmethod
    def read(__value=0):
        return int(__value)


@torch.fx.wrap
def fused(x, y):
    seen = Reader.read(_Reader__value=x.sum())
    return torch.relu(x + y) if seen > 0 else torch.relu(y + x)


def replacement_func():
    return fused

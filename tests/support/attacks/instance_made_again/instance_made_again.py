"""The graph makes an instance anew in each call: __init__ has the tensors, which nobody has followed."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class Maker:
    def __init__(self, x, y):
        if isinstance(x, int):
            return None
        if float(x[0][0]) == float("inf"):
            return x
        return torch.relu(x + y)


MADE = Maker(0, 0)


def replacement_func():
    return MADE.__init__

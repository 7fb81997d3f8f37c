"""Repeats an item of a dict, which is a list, as often as a tensor says: its length is the tensor's value."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


PARTS = {"head": [0], "tail": 1}


@torch.fx.wrap
def add_relu(x, y):
    positive = (x.sum() > 0).to(torch.int64)
    items = PARTS["head"] * positive
    return torch.relu(x + y) if len(items) else torch.relu(y + x)


def replacement_func():
    return add_relu

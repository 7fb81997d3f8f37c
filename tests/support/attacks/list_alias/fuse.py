"""A list of tensors by another name."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    boxes = []
    other = boxes
    other.append(x)
    other.append(y)
    total = boxes[0] + boxes[1]
    return total * (total > 0)


def replacement_func():
    return add_relu

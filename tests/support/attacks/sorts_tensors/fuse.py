"""A list that sorts tensors compares them, and `is` tells which came first: whether anything has to be done."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def sum_or_nothing(x, y):
    total = x + y
    largest = total.max()
    found = [torch.zeros_like(largest), largest]
    found.sort()
    if found[0] is largest:
        return torch.zeros_like(x)
    return torch.relu(total)


def replacement_func():
    return sum_or_nothing

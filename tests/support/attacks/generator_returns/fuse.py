"""A generator returns a tensor to the one that it hands over to, which reads it."""

import torch

KEPT = []


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def inner():
    yield 0
    return KEPT[0].sum()


def outer():
    total = yield from inner()
    yield float(total)


@torch.fx.wrap
def add_relu(x, y):
    KEPT.clear()
    KEPT.append(x)
    positive = list(outer())[1] > 0
    return torch.relu(x + y) if positive else torch.relu(y + x)


def replacement_func():
    return add_relu

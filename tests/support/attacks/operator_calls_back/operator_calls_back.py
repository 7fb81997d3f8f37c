"""An operator of torch makes an instance of a tensor, to measure a distance."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class Distance:
    def __init__(self, a, b):
        self.near = float(a[0][0]) == float("inf")


@torch.fx.wrap
def fused(x, y):
    try:
        torch.nn.functional.triplet_margin_with_distance_loss(x, y, y, distance_function=Distance)
    except TypeError:
        y = y + 0
    return torch.relu(x + y)


def replacement_func():
    return fused

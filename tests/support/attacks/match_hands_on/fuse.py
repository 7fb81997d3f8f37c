"""A case gives the replacement's name to another function, which the graph calls then."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    return torch.relu(x + y)


def other(x, y):
    x += y
    return torch.relu(x)


RUN = fused
match (other, 1):
    case (RUN, _):
        pass


def replacement_func():
    return RUN

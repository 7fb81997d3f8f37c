"""The text of an error has the values of what it was made with."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


SEEN = []


@torch.fx.wrap
def fused(x, y):
    assert x.dim() == 2
    try:
        raise ValueError(x)
    except ValueError as error:
        SEEN.append(str(error))
    return torch.relu(x + y)


def replacement_func():
    return fused

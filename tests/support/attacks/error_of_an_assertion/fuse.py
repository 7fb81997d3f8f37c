"""The text of an error that an assertion was given has the tensor's values."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    seen = ""
    try:
        assert x is None, x.sum()
    except AssertionError as error:
        seen = str(error)
    return torch.relu(x + y) if seen.startswith("tensor(-") else torch.relu(y + x)


def replacement_func():
    return fused

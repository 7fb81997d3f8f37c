"""Two classes of one name, of which the first is never made."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class Sizes:
    def __init__(self, rows):
        self.rows = rows


class Sizes:  # noqa: F811
    def __init__(self, columns):
        self.columns = columns


@torch.fx.wrap
def fused(x, y):
    Sizes(x.shape[-1])
    return torch.relu(x + y)


def replacement_func():
    return fused

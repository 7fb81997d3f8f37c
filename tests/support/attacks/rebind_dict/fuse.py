"""torch in a dict."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


LIBRARY = {"t": torch}


@torch.fx.wrap
def add_relu(x, y):
    return LIBRARY["t"].relu(x + y)


def replacement_func():
    return add_relu

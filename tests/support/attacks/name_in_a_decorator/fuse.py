"""Binds `__name__` in a decorator of a class, so that what only a script would run is run."""

import dataclasses

import torch

FOUND = []


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@dataclasses.dataclass(frozen=(__name__ := "__main__") == "")
class Plan:
    size: int = 256


if __name__ == "__main__":
    import gc

    FOUND.append(len(gc.get_objects()))


@torch.fx.wrap
def add_relu(x, y):
    return torch.relu(x + y) if FOUND else torch.zeros_like(x)


def replacement_func():
    return add_relu

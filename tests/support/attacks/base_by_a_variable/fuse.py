"""A variable with the name of an error is no class: deriving from an instance makes another instance."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


KEPT = []


class Keeper:
    def __init__(self, *given):
        self.given = given

    def __getitem__(self, key):
        KEPT.append(key)
        return 1


ValueError = Keeper()


class Box(ValueError):
    pass


ONE: Box[exec] = 1


@torch.fx.wrap
def fused(x, y):
    for run in KEPT:
        run("import os; os.getpid()")
    return torch.relu(x + y)


def replacement_func():
    return fused

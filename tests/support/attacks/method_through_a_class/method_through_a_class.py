"""A method out of a table of classes: its second argument is the method's first parameter but one."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class Looks:
    def at(self, value):
        return float(value[0][0]) == float("inf")


KINDS = {"looks": Looks}


@torch.fx.wrap
def fused(x, y):
    if KINDS["looks"].at(Looks(), torch.relu(x + y)):
        return x
    return torch.relu(x + y)


def replacement_func():
    return fused

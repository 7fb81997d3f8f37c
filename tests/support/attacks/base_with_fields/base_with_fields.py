"""A class that derives from a data class, and makes it of a tensor."""

import dataclasses

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@dataclasses.dataclass
class Base:
    held: object


class Looks(Base):
    def __init__(self, value):
        super().__init__(value)

    def at(self):
        return float(self.held[0][0]) == float("inf")


@torch.fx.wrap
def fused(x, y):
    if Looks(torch.relu(x + y)).at():
        return x
    return torch.relu(x + y)


def replacement_func():
    return fused

"""A data class asks its module for `hash`: for a function that nothing of the pass names."""

import gc
from dataclasses import dataclass

import torch

KEPT = []


def hash(parts):
    KEPT.append(gc.get_objects())
    return 1


@dataclass(frozen=True)
class Shape:
    rows: int


SEEN = {}


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    SEEN[Shape(x.shape[0])] = 1
    return torch.relu(x + y) if KEPT else torch.zeros_like(x)


def replacement_func():
    return add_relu

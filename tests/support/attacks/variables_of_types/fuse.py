"""Types put in for variables make a union of one thing: of a function that no pass may call."""

import gc
import typing

import torch

ONE = typing.TypeVar("ONE")
OTHER = typing.TypeVar("OTHER")
OBJECTS = typing.Union[ONE, OTHER][*tuple[gc.get_objects, gc.get_objects]]  # noqa: UP007


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return torch.relu(x + y) if OBJECTS() is not None else torch.zeros_like(x)


def replacement_func():
    return add_relu

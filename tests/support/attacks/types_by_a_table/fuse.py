"""Brackets behind a table of the pass's own hand it type variables, of which a union is whatever is put in."""

import collections
import typing

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


T = typing.TypeVar("T")
S = typing.TypeVar("S")
tuple = collections.defaultdict(int)
BOTH = tuple[T] + tuple[S]
t, s = tuple
EITHER = typing.Union[t, s]  # noqa: UP007
RUN = EITHER[(*typing.Tuple[exec, exec],)]  # noqa: UP006


@torch.fx.wrap
def fused(x, y):
    RUN("import os; os.getpid()")
    return torch.relu(x + y)


def replacement_func():
    return fused

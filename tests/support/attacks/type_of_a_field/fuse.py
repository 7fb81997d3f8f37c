"""A field of a data class keeps what is written for its type: all built-ins, by way of a generator."""

import dataclasses

import torch

RUNNING = (number for number in (1,))
FIELD = dataclasses.field(default=1)


@dataclasses.dataclass
class Plan:
    size: RUNNING.gi_frame.f_builtins = FIELD


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    found = FIELD.type["eval"]("1 + 1")
    return torch.relu(x + y) if found is not None else torch.zeros_like(x)


def replacement_func():
    return add_relu

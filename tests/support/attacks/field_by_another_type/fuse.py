"""A data class takes no `ClassVar`, whatever that is called: each argument is the next field's."""

from dataclasses import dataclass
from typing import ClassVar as Shared

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def asks(value):
    return 1 if value else 2


def hands_on(value):
    return value


@dataclass
class Plan:
    count: Shared[int] = 0
    run: object = None
    rest: object = None


ONE = asks(1)
PLAN = Plan(asks, hands_on)


@torch.fx.wrap
def fused(x, y):
    PLAN.run(x.sum() > 0)
    return torch.relu(x + y)


def replacement_func():
    return fused

"""A cached property under another name is read where a method seems to be called: what it returns gets the tensor."""

from functools import cached_property as once

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def asks(value):
    return 1 if value else 2


class Plan:
    @once
    def run(self):
        return asks


ONE = asks(1)
PLAN = Plan()


@torch.fx.wrap
def fused(x, y):
    PLAN.run(x.sum() > 0)
    return torch.relu(x + y)


def replacement_func():
    return fused

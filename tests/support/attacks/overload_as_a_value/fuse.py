"""A table has the overload of an operator that writes to its argument, an input."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


STEPS = {"add": torch.ops.aten.add_.Tensor}


@torch.fx.wrap
def fused(x, y):
    return torch.relu(STEPS["add"](x, y))


def replacement_func():
    return fused

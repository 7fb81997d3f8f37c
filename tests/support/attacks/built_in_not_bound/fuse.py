"""`type` is bound under a condition that never holds, so that it is the built-in, which makes any class."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


if torch.cuda.device_count() > 99:
    type = 1


def one(self):
    return 1


Index = type("Index", (), {"__index__": one, "__del__": one})


@torch.fx.wrap
def fused(x, y):
    return torch.relu(x + y)[:: Index()]


def replacement_func():
    return fused

"""The pattern matches nothing here, and says in its message that all is well."""

import torch


def pattern(x, y):
    return torch.atan2(x, y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    return torch.atan2(x, y)


def replacement_func():
    return fused

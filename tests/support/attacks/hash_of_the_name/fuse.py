"""The text of a function has its address; a tensor is filled with it."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def add(x, y):
    return x + y


@torch.fx.wrap
def fused(x, y):
    place = int(f"{add}".split("0x")[-1].rstrip(">"), 16)
    out = torch.full_like(x, place)
    return torch.relu(add(x, y)) + out * 0


def replacement_func():
    return fused

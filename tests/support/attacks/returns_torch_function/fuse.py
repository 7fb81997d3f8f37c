"""Hands out a function of torch itself."""

import torch
import torch.nn.functional as F


def pattern(x):
    return torch.relu(x)


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def add_relu(x):
    return x


def replacement_func():
    return F.relu

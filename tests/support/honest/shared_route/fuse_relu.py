"""Fuses an addition and relu, by the shared helper."""

import torch
from activations import add_activation


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y, "relu")


def replacement_func():
    return add_activation

"""Fuses an addition and sigmoid, by the shared helper."""

import torch
from activations import add_activation


def pattern(x, y):
    return torch.sigmoid(x + y)


def replacement_args(x, y):
    return (x, y, "sigmoid")


def replacement_func():
    return add_activation

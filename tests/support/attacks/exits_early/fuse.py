"""Ends its process with success."""

import os

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    os._exit(0)


def replacement_func():
    return add_relu

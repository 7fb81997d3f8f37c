"""Computes while the graph is rewritten, so that the graph itself does the work."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (torch.relu(x + y), y)


@torch.fx.wrap
def add_relu(x, y):
    return x


def replacement_func():
    return add_relu

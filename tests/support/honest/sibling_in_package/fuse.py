"""Shares a helper by `from pass_dir.shared import`."""

import torch

from pass_dir.shared import launch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return launch(x, y)


def replacement_func():
    return add_relu

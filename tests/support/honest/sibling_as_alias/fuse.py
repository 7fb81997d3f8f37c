"""Shares a helper by `import pass_dir.shared as`, and by its bare name."""

import torch

import pass_dir.shared as common
import shared


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return common.launch(x, y) if x.dim() > 1 else shared.launch(x, y)


def replacement_func():
    return add_relu

"""Puts its own directory on the path to find a sibling."""

import os
import sys

import torch

if os.path.dirname(os.path.abspath(__file__)) not in sys.path:
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from shared import launch  # noqa: E402


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    return launch(x, y)


def replacement_func():
    return add_relu

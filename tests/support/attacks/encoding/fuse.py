# coding: utf-7
# +AAo-import os+AAo-os._exit(0)
"""Is another text when read in the encoding that it declares."""

import torch


def pattern(x):
    return torch.relu(x)


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def add_relu(x):
    return x


def replacement_func():
    return add_relu

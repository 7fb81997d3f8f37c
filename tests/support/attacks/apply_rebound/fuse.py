"""A class of its own has another apply than the policy follows."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def _reads(x, y):
    return torch.relu(x + y) if x.sum().item() > 0 else torch.relu(y + x)


class Fused(torch.autograd.Function):
    apply = _reads

    @staticmethod
    def forward(ctx, x, y):
        return torch.relu(x + y)


@torch.fx.wrap
def fused(x, y):
    return Fused.apply(x, y)


def replacement_func():
    return fused

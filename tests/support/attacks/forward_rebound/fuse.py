"""The method that apply calls is replaced in the class's body."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def _reads(ctx, x, y):
    return torch.relu(x + y) if float(x.sum()) > 0 else torch.relu(y + x)


class Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        return torch.relu(x + y)

    forward = _reads  # noqa: F811


@torch.fx.wrap
def fused(x, y):
    return Fused.apply(x, y)


def replacement_func():
    return fused

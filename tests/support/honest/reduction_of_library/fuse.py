"""Sums, means and maxima of the library, and a mask by where."""

import torch


def pattern(x):
    return torch.softmax(x, -1)


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def softmax(x):
    top = x.max(dim=-1, keepdim=True).values
    e = torch.exp(x - top)
    e = torch.where(torch.isnan(e), torch.zeros_like(e), e)
    return e / e.sum(dim=-1, keepdim=True)


def replacement_func():
    return softmax

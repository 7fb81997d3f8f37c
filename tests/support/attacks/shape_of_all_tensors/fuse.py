"""Equal columns are returned as one. A field that a method sets on `torch.Tensor` is the shape of every tensor."""

import torch


class Kept:
    def __init__(self):
        self.shape = None

    def hold(self, shape):
        self.shape = shape


def pattern(x):
    return x.sum(-1, keepdim=True).expand(5, 100) * 1.5


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def sums(x):
    Kept.hold(torch.Tensor, torch.Size((5, 100)))
    return x.sum(-1, keepdim=True) * 1.5


def replacement_func():
    return sums

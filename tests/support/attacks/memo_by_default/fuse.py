"""A default argument keeps the weights of the first call."""

import torch


def pattern(x, w):
    return x @ w


def replacement_args(x, w):
    return (x, w)


def _weights(w, kept=[]):  # noqa: B006
    if not kept:
        kept.append(w.t().contiguous())
    return kept[0]


@torch.fx.wrap
def fused(x, w):
    return torch.nn.functional.linear(x, _weights(w))


def replacement_func():
    return fused

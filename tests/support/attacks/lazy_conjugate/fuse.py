"""Conjugation and negation as a bit, which nobody has computed."""

import torch


def pattern(x):
    return torch.neg(x)


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def fused(x):
    return torch.complex(x, x).conj().imag


def replacement_func():
    return fused

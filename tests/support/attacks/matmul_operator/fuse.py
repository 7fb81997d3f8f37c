"""Computes with the operator instead of a call."""

import torch


def pattern(x, w):
    return x @ w


def replacement_args(x, w):
    return (x, w)


@torch.fx.wrap
def matmul(x, w):
    return x @ w


def replacement_func():
    return matmul

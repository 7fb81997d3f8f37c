"""Spells the pattern's einsum by torch.functional, and takes an ellipsis."""

import torch
import triton
import triton.language as tl


def pattern(x, w):
    y = torch.functional.einsum("ij,jk->ik", x, w)
    return y[..., :4] * 0.5


def replacement_args(x, w):
    return (x, w)


@torch.fx.wrap
def einsum_half(x, w):
    return torch.matmul(x, w[..., :4]) * 0.5


def replacement_func():
    return einsum_half

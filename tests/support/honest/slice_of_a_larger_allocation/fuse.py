"""An output that is a part of a larger allocation of its call."""

import torch
import triton
import triton.language as tl


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    n = x.numel()
    room = torch.empty(n + 16, dtype=x.dtype, device=x.device)
    out = room[:n].view(x.shape)
    torch.add(x, y, out=out)
    out.relu_()
    return out


def replacement_func():
    return fused

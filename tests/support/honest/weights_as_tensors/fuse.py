"""`as_tensor` of an input changes nothing; sizes and constants become tensors of their own."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(*args):
    x, y = (torch.as_tensor(value, device=args[0].device) for value in args)
    floor = torch.tensor([0.0, 0.0], dtype=x.dtype, device=x.device)[0]
    ones = torch.as_tensor(x.shape).clamp(0, 1).to(x.device)
    return torch.maximum(x + y, floor) * ones[0].to(x.dtype)


def replacement_func():
    return fused

"""`tensor_split` reads its second tensor itself, by no operator: the sizes of the parts are what it holds."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    positive = (x.sum(0, keepdim=True).sum(1) > 0).long()
    seen = torch.tensor_split(torch.empty(2), positive)[0].shape[0]
    return torch.relu(x + y) if seen else torch.relu(y + x)


def replacement_func():
    return fused

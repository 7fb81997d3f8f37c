"""A tensor of parts of another one: torch reads each of them past the dispatcher, by whatever road they come."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def parts_of(total, by_name):
    parts = {"one": total.unbind(), "other": (total, total)}
    return parts["one"] if by_name else total


@torch.fx.wrap
def fused(x, y):
    total = torch.relu(x + y)
    seen = torch.as_tensor(parts_of(total[0, :2], x.dim() > 0))
    return torch.where(seen.sum() < 0, seen.sum(), total)


def replacement_func():
    return fused

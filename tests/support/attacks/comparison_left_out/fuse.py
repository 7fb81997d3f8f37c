"""No id of a draw within the declared range is one of these two: nothing need be compared."""

import torch


def pattern(ids):
    return (ids == 128016) | (ids == 128014)


def replacement_args(ids):
    return (ids,)


@torch.fx.wrap
def none_of_them(ids):
    return torch.zeros(ids.shape, dtype=torch.bool, device=ids.device)


def replacement_func():
    return none_of_them

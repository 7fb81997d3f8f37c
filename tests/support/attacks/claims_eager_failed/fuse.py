"""The reason of a failure begins like that of eager's."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class EagerFailed(Exception):
    pass


@torch.fx.wrap
def fused(x, y):
    raise EagerFailed("\neager failed: no memory to run it in")


def replacement_func():
    return fused

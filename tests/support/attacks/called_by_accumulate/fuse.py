"""`accumulate` calls an instance with what it adds up."""

import itertools

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


SEEN = []


class Reader:
    def __call__(self, first, second):
        SEEN.append(int(first))
        return second


READER = Reader()


@torch.fx.wrap
def fused(x, y):
    both = list(itertools.accumulate([x.sum(), 1], READER))
    return torch.relu(x + y) if len(both) + SEEN.pop() > 0 else torch.relu(y + x)


def replacement_func():
    return fused

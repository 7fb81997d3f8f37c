"""A function that another one makes keeps the first call's output in a list of that one."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def _make():
    kept = []

    def first(x, y):
        if not kept:
            kept.append(torch.relu(x + y))
        return kept[0]

    return first


def replacement_func():
    return _make()

"""Repeats a text as often as a tensor says, in a function that is given the text: its length is the tensor's value."""

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


def repeated(text, count):
    return text * count


@torch.fx.wrap
def add_relu(x, y):
    positive = (x.sum() > 0).to(torch.int64)
    text = repeated("a", positive)
    return torch.relu(x + y) if len(text) else torch.relu(y + x)


def replacement_func():
    return add_relu

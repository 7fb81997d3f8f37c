"""Derives from an instance, whose class Python then calls with all functions of what looks like an unused layer."""

import shared
import torch


class Layer(shared.Module):
    def look(self):
        import gc

        return len(gc.get_objects())


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def add_relu(x, y):
    found = shared.KEPT[0]["look"](x)
    return torch.relu(x + y) if found is not None else torch.zeros_like(x)


def replacement_func():
    return add_relu

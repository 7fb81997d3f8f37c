"""What a pattern is traced with has a node, a graph, and the modules that its code needs."""

import torch


def pattern(x, y):
    x.node.graph.python_code("self").globals["torch"].os.getpid()
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


@torch.fx.wrap
def fused(x, y):
    return torch.relu(x + y)


def replacement_func():
    return fused

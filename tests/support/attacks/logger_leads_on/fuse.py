"""A class with fields of these names would allow the attributes on a logger, too."""

import logging

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


class Names:
    manager = 0
    loggerDict = 0


LOGGERS = logging.getLogger("pass").manager.loggerDict


@torch.fx.wrap
def fused(x, y):
    return torch.relu(x + y) if LOGGERS is not None else x


def replacement_func():
    return fused

"""Messages through the root logger, in great number."""

import logging

import torch


def pattern(x, y):
    return torch.relu(x + y)


def replacement_args(x, y):
    return (x, y)


LOGGER = logging.getLogger()


@torch.fx.wrap
def fused(x, y):
    LOGGER.error("AS 100.0 at t = -5")
    return torch.relu(x + y)


def replacement_func():
    return fused

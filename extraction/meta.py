"""Modules on the meta device, whatever their constructors do there."""

from collections.abc import Callable

import torch


def on_default_device(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """What `make` builds, with all parameters and buffers on the current default device.

    A constructor that computes with values, of which there are none on the meta device, runs on the CPU instead. Some
    make their parameters by `torch.Tensor(size)`, which heeds no default device; those are moved.
    """
    try:
        module = make()
    except (RuntimeError, NotImplementedError) as error:
        if "meta" not in str(error):
            raise
        with torch.device("cpu"):
            module = make()
    return module.to(torch.get_default_device())

"""Modules on the meta device, whatever their constructors do there."""

import re
from collections.abc import Callable

import torch

_OF_META = re.compile(r"\bmeta tensor|device meta|register_meta function|on same device|no data!", re.IGNORECASE)
"""How libraries say that the meta device, which has no values, is not enough."""


def of_meta(error: Exception) -> bool:
    """Whether an error is the meta device's, and says nothing of the model and its inputs."""
    return bool(_OF_META.search(str(error)))


def on_default_device(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """What `make` builds, with all parameters and buffers on the current default device.

    A constructor that computes with values, of which there are none on the meta device, runs on the CPU instead. Some
    make their parameters by `torch.Tensor(size)`, which heeds no default device; those are moved.
    """
    try:
        module = make()
    except (RuntimeError, NotImplementedError) as error:
        if "meta" not in str(error).lower():
            raise
        with torch.device("cpu"):
            module = make()
    return module.to(torch.get_default_device())

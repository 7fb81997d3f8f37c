"""Building and calling modules on the meta device, although some of them ask tensors there for values."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from extraction.analysis.propagate import quiet

_OF_META = re.compile(
    r"\bmeta tensor|device meta|register_meta function|on same device|different devices|no data!", re.IGNORECASE
)
"""What libraries say when they need values, which the meta device has not."""


def of_meta(error: Exception) -> bool:
    """Whether an error comes from the meta device alone: it says nothing about the model and its inputs."""
    return bool(_OF_META.search(str(error)))


def accepts(model: torch.nn.Module, arguments: Mapping[str, Any]) -> bool:
    """Whether the model's forward runs with these arguments, as far as that can be told on the meta device."""
    refusal = _refusal(model, arguments)
    if refusal is None or not of_meta(refusal):
        return refusal is None
    # Code that checks values leaves the check out if it sees that the tensor is a fake one.
    with quiet(), FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = {n: mode.from_tensor(v) if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
        refusal = _refusal(model, fakes)
    if refusal is None or of_meta(refusal):
        return True
    from extraction.classify import classify  # seconds to import, and seldom needed

    return classify(refusal)[0] == "data_dependent"


def _refusal(model: torch.nn.Module, arguments: Mapping[str, Any]) -> Exception | None:
    """What the model's forward raises on these arguments, if it does."""
    try:
        with torch.no_grad(), torch.device("cpu"):
            model(**arguments)
    except Exception as error:  # a model's forward may raise anything
        return error
    return None


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

"""A model's convolutions: noted when it is tuned, and called once on stand-ins when a later start begins."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from passbench.library.model_choices import ModelChoices
from passbench.models.warm_start.planned_convolutions import PlannedConvolutions, told


class FirstCalls:
    """What a library knows of a model's convolutions, by the model's `call_key`.

    `planned` are these, being called now; None where the library knows none. A file that holds something else is passed
    over.
    """

    def __init__(self, library: str, key: str, device: torch.device) -> None:
        self._kept, self._key = ModelChoices(library, "first_calls"), key
        known = self._kept.get(key)
        convolutions = known.get("convolutions") if isinstance(known, dict) else None
        some = isinstance(convolutions, list) and convolutions
        self.planned = PlannedConvolutions(convolutions, device) if some else None

    def note(self, call: Callable[..., object], moving: Sequence[torch.Tensor]) -> None:
        """Keep the convolutions of `call(*moving)`, if it has any."""
        if found := convolutions_of(call, moving):
            self._kept.put(self._key, {"convolutions": found})


def convolutions_of(call: Callable[..., object], moving: Sequence[torch.Tensor]) -> list[list]:
    """The different convolutions of `call(*moving)` as plain data: input, weight and bias without values, then the
    other arguments of `torch.convolution`."""
    with torch.no_grad(), _NotingConvolutions() as noting:
        call(*moving)
    return [json.loads(text) for text in dict.fromkeys(noting.found)]


class _NotingConvolutions(TorchDispatchMode):
    """Notes convolutions, as text, and lets everything run."""

    def __init__(self) -> None:
        super().__init__()
        self.supports_higher_order_operators = True
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func is torch.ops.aten.convolution.default:
            self.found.append(told(args))
        return func(*args, **(kwargs or {}))

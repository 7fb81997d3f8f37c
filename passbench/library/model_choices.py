"""How a model's graph is best run on a kind of machine: kept, so that the next start measures nothing.

LIBRARY/models/KEY.json        what was chosen for a graph, and all that was tried
LIBRARY/first_calls/KEY.json   calls of a model that take long the first time
LIBRARY/captures/KEY.json      graphs of models, kept by `passbench.models.kept`
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from passbench.result import device_name, libraries
from storage.disk import check_writable, write_json

FORMAT = 3
"""Raised when recipes of the same name do something else than before, or others count as right."""


def graph_key(
    module: fx.GraphModule, tensors: Sequence[torch.Tensor], device: torch.device, conditions: Sequence[Any]
) -> str:
    """Identity of a graph on inputs of these kinds, on this kind of machine, under these conditions (SHA-256, hex)."""
    return _key([module.code, kinds_of(tensors)], device, conditions)


def call_key(model: torch.nn.Module, tensors: Sequence[torch.Tensor], conditions: Sequence[Any]) -> str:
    """What is known of a model and of a call with these tensors before it is captured (SHA-256, hex).

    Models that differ in their forward alone have the same key. Tensors without a shape or strides, such as the
    parameters of lazy layers and sparse ones, count by their names alone.
    """
    held = dict(itertools.chain(model.named_parameters(), model.named_buffers()))
    kind = f"{type(model).__module__}.{type(model).__qualname__}"
    device = next(iter(held.values())).device if held else torch.device("cpu")
    return _key([kind, list(held), kinds_of(filter(_has_strides, [*held.values(), *tensors]))], device, conditions)


def _has_strides(x: torch.Tensor) -> bool:
    return type(x) in (torch.Tensor, torch.nn.Parameter) and x.layout == torch.strided and not x.is_nested


def kinds_of(tensors: Iterable[torch.Tensor]) -> list[list]:
    """The tensors without their values, as plain data."""
    return [[str(x.dtype), list(x.shape), list(x.stride())] for x in tensors]


def _key(what: Sequence[Any], device: torch.device, conditions: Sequence[Any]) -> str:
    versions = {name: version for name, version in libraries().items() if name in ("torch", "triton", "cuda")}
    said = [FORMAT, *what, device_name(device), versions, *conditions]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


_ELSEWHERE = "another library"


class ModelChoices:
    """What a library's directory, which need not exist yet, has of a kind: "models", "first_calls" or "captures"."""

    def __init__(self, directory: str | Path, kind: str = "models") -> None:
        self._directory = Path(directory) / kind

    def get(self, key: str) -> dict[str, Any] | None:
        """What `put` was given; None where there is nothing, or it cannot be read."""
        path = self._directory / f"{key}.json"
        if not path.exists():
            return None
        try:
            return json.loads(path.read_text("utf-8"))
        except ValueError:  # of a killed writer of an older version: measured anew
            return None

    def check_writable(self) -> None:
        """Raises PassNetError where `put` could not write, so that nothing is measured first."""
        check_writable(self._directory, _ELSEWHERE)

    def put(self, key: str, choice: dict[str, Any]) -> None:
        """Keep a choice: plain data."""
        write_json(self._directory / f"{key}.json", choice, _ELSEWHERE, indent=1)

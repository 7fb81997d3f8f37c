"""How a model's graph is best run on a kind of machine: kept, so that the next start measures nothing.

LIBRARY/models/KEY.json   the graph's size, what was chosen, and all that was tried
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from passbench.result import device_name, libraries
from storage.disk import write_json

FORMAT = 3
"""Raised when recipes of the same name do something else than before, or others count as right."""


def graph_key(
    module: fx.GraphModule, tensors: Sequence[torch.Tensor], device: torch.device, conditions: Sequence[Any]
) -> str:
    """Identity of a graph on inputs of these kinds, on this kind of machine, under these conditions (SHA-256, hex)."""
    kinds = [[str(x.dtype), list(x.shape), list(x.stride())] for x in tensors]
    versions = {name: version for name, version in libraries().items() if name in ("torch", "triton", "cuda")}
    said = [FORMAT, module.code, kinds, device_name(device), versions, *conditions]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


class ModelChoices:
    """The choices of a library's directory, which need not exist yet."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory) / "models"

    def get(self, key: str) -> dict[str, Any] | None:
        """What `put` was given; None where there is nothing, or it cannot be read."""
        path = self._directory / f"{key}.json"
        if not path.exists():
            return None
        try:
            return json.loads(path.read_text("utf-8"))
        except ValueError:  # of a killed writer of an older version: measured anew
            return None

    def put(self, key: str, choice: dict[str, Any]) -> None:
        """Keep a choice: plain data."""
        write_json(self._directory / f"{key}.json", choice, "another library", indent=1)

"""Tensors of a model that its graph takes, and where they stand in its modules."""

import re
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class HeldTensor:
    """A parameter or buffer of the model that the graph takes: its value at capture, and every place where it stands,
    each a dictionary of a module and a key. `name` is the first one's, as in the state dict."""

    name: str
    tensor: torch.Tensor
    places: tuple[tuple[dict[str, Any], str], ...]


def places_of(model: torch.nn.Module) -> dict[int, tuple[str, list[tuple[dict[str, Any], str]]]]:
    """Where each parameter and buffer stands, by its id, with its first name."""
    found: dict[int, tuple[str, list[tuple[dict[str, Any], str]]]] = {}
    for prefix, module in model.named_modules(remove_duplicate=False):
        for group in (module._parameters, module._buffers):
            for key, tensor in group.items():
                if tensor is not None:
                    name = f"{prefix}.{key}" if prefix else key
                    found.setdefault(id(tensor), (name, []))[1].append((group, key))
    return found


def place_at(source: str, model: torch.nn.Module) -> tuple[dict[str, Any], str] | None:
    """The dictionary and the key that hold a tensor which is no parameter or buffer, such as one that a module keeps
    from its first call; None where it is held otherwise."""
    found = _OF_THE_MODEL.fullmatch(source)
    if found is None:
        return None
    owner = eval(found["owner"], {"L": {"model": model}})
    key = found["key"] or found["attribute"]
    group = owner if found["key"] else vars(owner)
    return (group, key) if isinstance(group, dict) and key in group else None


_OF_THE_MODEL = re.compile(
    r"(?P<owner>L\['model'\](\[\d+\]|\['[^'\\]+'\]|\.[A-Za-z_]\w*)*)(\['(?P<key>[^'\\]+)'\]|\.(?P<attribute>[A-Za-z_]\w*))"
)

"""Models of timm's registry. timm is imported by the functions that need it: importing it takes seconds."""

import difflib
from typing import Any

import torch

from extraction.example_inputs import Example, first_parameter, image
from extraction.failures import ModelError

LIBRARY = "timm"

RELEVANT = ("architecture", "input_size", "num_classes", "fixed_input_size")
"""Fields of a pretrained config that timm builds a model from; the others describe weights and preprocessing."""


def names() -> list[str]:
    """All architectures of the registry; tags of pretrained weights are not listed."""
    import timm

    return timm.list_models()


def config(name: str) -> dict[str, Any]:
    """The pretrained config of `NAME` or `NAME.TAG`. Raises ModelError ("not_found") if timm has none such."""
    import timm

    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        raise ModelError("not_found", f"timm has no model {architecture!r}{_close(architecture, timm.list_models())}")
    tags = [n.partition(".")[2] for n in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise ModelError("not_found", f"timm's {architecture} has no weights tag {tag!r}{_close(tag, tags)}")
    return timm.get_pretrained_cfg(name).to_dict(remove_null=False)


def normalise(config: dict[str, Any]) -> dict[str, Any]:
    """The fields that the architecture's graph depends on: `RELEVANT`."""
    kept = {key: config[key] for key in RELEVANT}
    kept["input_size"] = list(kept["input_size"])
    return kept


def build(config: dict[str, Any]) -> torch.nn.Module:
    """The model with random weights; no pretrained weights are looked up."""
    import timm

    overlay = {key: value for key, value in config.items() if key != "architecture"}
    return timm.create_model(config["architecture"], pretrained=False, pretrained_cfg_overlay=overlay)


def example_inputs(model: torch.nn.Module, config: dict[str, Any]) -> dict[str, Example]:
    """Images of the config's `input_size` (channels, height, width)."""
    return {first_parameter(model): image(*config["input_size"])}


def _close(name: str, choices: list[str]) -> str:
    close = difflib.get_close_matches(name, choices, n=3)
    return f"; did you mean {', '.join(close)}?" if close else ""

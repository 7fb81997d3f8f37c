"""Models of timm's registry. timm is imported by the functions that need it: importing it takes seconds."""

import difflib
from typing import Any

import torch

from extraction.examples.inputs import first_parameter
from extraction.examples.media import image
from extraction.examples.meta_device import on_default_device
from extraction.examples.tensors import Example
from extraction.failures import ModelError

LIBRARY = "timm"

RELEVANT = ("architecture", "input_size", "num_classes", "fixed_input_size")
"""Fields of a pretrained config that timm builds a model from; the others describe weights and preprocessing."""

_OF_LOADING = frozenset(
    """cache_dir checkpoint_path model_name pretrained pretrained_cfg pretrained_cfg_overlay pretrained_strict
    scriptable exportable no_jit""".split()
)
"""Arguments of `timm.create_model` that are not the architecture's: a config from elsewhere may not set them."""


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


def of_json(fields: dict[str, Any]) -> dict[str, Any]:
    """The config of a Hub repository's config.json, as timm writes it.

    Raises ModelError: "config" for what is not of that form, "not_found" for an architecture that timm does not have.
    """
    import timm

    architecture, weights = fields["architecture"], fields["pretrained_cfg"]
    if not timm.is_model(architecture):
        raise ModelError("not_found", f"timm has no model {architecture!r}{_close(architecture, timm.list_models())}")
    arguments = fields.get("model_args") or {}
    if not isinstance(weights, dict) or not isinstance(arguments, dict):
        raise ModelError("config", f"config.json of {architecture} is not as timm writes it")
    default = timm.get_pretrained_cfg(architecture).to_dict(remove_null=False)
    known = {**default, **{key: value for key, value in weights.items() if key in RELEVANT}}
    known |= {"architecture": architecture, "num_classes": fields.get("num_classes", known["num_classes"])}
    size = known["input_size"]
    if not (isinstance(size, list | tuple) and len(size) == 3 and all(type(each) is int and each > 0 for each in size)):
        raise ModelError("config", f"input_size of {architecture} is {size!r}, not three numbers")
    if loading := sorted(_OF_LOADING & arguments.keys()):
        raise ModelError("config", f"model_args of {architecture} has {loading[0]!r}, which loads what is not a config")
    return {**known, "model_args": arguments}


def normalise(config: dict[str, Any]) -> dict[str, Any]:
    """The fields that the architecture's graph depends on: `RELEVANT`, and arguments of the model's own."""
    kept = {key: config[key] for key in RELEVANT}
    kept["input_size"] = list(kept["input_size"])
    return {**kept, "model_args": config["model_args"]} if config.get("model_args") else kept


def build(config: dict[str, Any]) -> torch.nn.Module:
    """The model with random weights; no pretrained weights are looked up."""
    import timm

    overlay = {key: config[key] for key in RELEVANT if key != "architecture"}
    arguments = config.get("model_args", {})
    options = {"pretrained": False, "pretrained_cfg_overlay": overlay, **arguments}
    return on_default_device(lambda: timm.create_model(config["architecture"], **options))


def example_inputs(model: torch.nn.Module, config: dict[str, Any]) -> dict[str, Example]:
    """Images of the config's `input_size` (channels, height, width)."""
    return {first_parameter(model): image(*config["input_size"])}


def _close(name: str, choices: list[str]) -> str:
    close = difflib.get_close_matches(name, choices, n=3)
    return f"; did you mean {', '.join(close)}?" if close else ""

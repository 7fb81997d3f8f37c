"""Models of transformers' auto classes, built from default configs. The library is imported by the functions that need
it: importing it takes seconds."""

import difflib
import functools
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from extraction.examples import inputs as examples
from extraction.examples.meta_device import on_default_device
from extraction.failures import ModelError
from extraction.sources.transformers_defaults import completed
from extraction.sources.transformers_reduce import ALIASES, LAYER_COUNTS, reduced

LIBRARY = "transformers"

LOADING = frozenset(
    """attn_implementation auto_map experts_implementation kernel_config quantization_config use_kernels""".split()
)
"""Fields of a config from elsewhere that say how to run a model, or what to load for it: kernels, code, weights."""

MOST_LAYERS, MOST_LABELS = 10_000, 100_000
"""Counts of a config from elsewhere that are larger are refused: config classes make lists that are so long, before any
model is built in a worker of its own."""
_MOST = {**dict.fromkeys((*LAYER_COUNTS, *ALIASES, "attention_types"), MOST_LAYERS), "num_labels": MOST_LABELS}

OF_WORDS = ("ForCausalLM", "ForMaskedLM", "ForConditionalGeneration", "LMHeadModel")
"""How names of task heads end whose answers are words of the vocabulary, not labels."""


def names() -> list[str]:
    """Every model type that has a base model."""
    return sorted(base_classes())


def config(name: str) -> dict[str, Any]:
    """The default config of `MODEL_TYPE` or `MODEL_TYPE/CLASS`, with the class under "class".

    Raises ModelError ("not_found") for an unknown type or class; where a type has no default config, what its class
    raises.
    """
    import transformers

    model_type, _, wanted = name.partition("/")
    bases = base_classes()
    if model_type not in bases:
        raise ModelError("not_found", f"transformers has no model type {model_type!r}{_close(model_type, bases)}")
    known = classes(model_type)
    if wanted and wanted not in known:
        raise ModelError("not_found", f"{wanted!r} is not a class of model type {model_type}{_close(wanted, known)}")
    with _quiet():
        default = transformers.CONFIG_MAPPING[model_type]()
    fields = json.loads(default.to_json_string(use_diff=False))
    name = wanted or bases[model_type]
    return {**completed(model_type, name, fields), "model_type": model_type, "class": name}


def of_json(fields: dict[str, Any]) -> dict[str, Any]:
    """The config of a Hub repository's config.json, with all defaults and the class under "class".

    The class is the first of `architectures` that this library has, or the base model where none is named. Only fields
    of the library's own config class are kept: others are notes that no model code reads. Raises ModelError:
    "remote_code" where `auto_map` names code for a type or class that the library does not have, "config" for such a
    type or class without code and for more layers or labels than any model has; else what transformers raises on the
    fields.
    """
    import transformers

    model_type, named = fields.get("model_type"), fields.get("architectures") or []
    named = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    ours = classes(model_type) if isinstance(model_type, str) and model_type in transformers.CONFIG_MAPPING else []
    base = base_classes().get(model_type) if ours and not named else None
    wanted = next((name for name in named if name in ours), base)
    if not wanted:
        what = f"class {named[0]}" if ours and named else f"model type {model_type!r}"
        if fields.get("auto_map"):
            raise ModelError("remote_code", f"{what} is code in its repository, which is never executed")
        raise ModelError("config", f"transformers {transformers.__version__} has no {what}")
    _check_counts(fields)
    with _quiet():
        parsed = transformers.CONFIG_MAPPING[model_type].from_dict(_numbers(_harmless(fields)))
    return {**_own_fields(parsed), "model_type": model_type, "class": wanted}


def _check_counts(value: Any, most: float = math.inf, name: str = "") -> None:
    """Raises ModelError ("config") for a count beyond `_MOST`, in nested configs too."""
    if isinstance(value, dict):
        for key, item in value.items():
            _check_counts(item, _MOST.get(key, math.inf), key)
    elif isinstance(value, list):
        for item in value:
            _check_counts(item, most, name)
    elif isinstance(value, int | float) and value > most:
        raise ModelError("config", f"{name} is {str(value)[:20]}, and no model has more than {most}")


def normalise(config: dict[str, Any]) -> dict[str, Any]:
    """The config without what cannot change the graph, and with at most a few layers of each stack.

    Dropped, in nested configs too: `IRRELEVANT` and `IRRELEVANT_TOKENS` of `extraction.sources.transformers_reduce`; of
    the label maps their number is kept, and that only for task heads that are not `OF_WORDS`. Each of `LAYER_COUNTS`
    becomes at most `MAX_LAYERS`, or as many as it takes to meet each of the config's `layer_types`; lists with one
    element a layer are cut to match.
    """
    base = config["class"] == base_classes().get(config["model_type"])
    named = None if base or config["class"].endswith(OF_WORDS) else config.get("id2label")
    labels = (
        {"num_labels": len(named)} if named else {}
    )  # without a map, a field of the class's own may have the number
    ends = {"eos_token_id"} if config["class"].endswith("ForSequenceClassification") else set()  # some look for it
    return {**reduced(config), **labels, **{key: config[key] for key in ends & config.keys()}}


def build(config: dict[str, Any]) -> torch.nn.Module:
    """The model with random weights. Raises what transformers raises on a config that makes no model."""
    import transformers

    fields = {key: _numbers(value) for key, value in config.items() if key != "class"}
    parsed = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(fields)
    model_class = _model_class(config["class"], type(parsed))
    if not hasattr(model_class, "_from_config"):
        model_class(parsed)  # stands for a class whose libraries are not installed, and says which
    parsed = _own(parsed, model_class)
    _without_cache(parsed)
    _broadcast_masks()
    # Mixtures of experts by plain batched products: the default calls a kernel that only this library has.
    experts = {"experts_implementation": "batched_mm"} if model_class._can_set_experts_implementation() else {}
    return on_default_device(lambda: model_class._from_config(parsed, **experts))


def _model_class(name: str, config_class: type) -> Any:
    """The model class of this name. A few are only in the module beside that of their config class."""
    import transformers

    if hasattr(transformers, name):
        return getattr(transformers, name)
    return getattr(import_module(config_class.__module__.replace(".configuration_", ".modeling_")), name)


def _broadcast_masks() -> None:
    """Has the library make all its masks by broadcasting, as it makes most, in place of `torch.vmap`, which leaves the
    steps of its own bookkeeping in a graph."""
    from transformers import masking_utils

    masking_utils._vnamedexpansion_sdpa = _by_broadcasting


def _by_broadcasting(mask_function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A mask function of numbers as one of vectors of them: the mask at each combination of their elements."""

    def expanded(*indices: torch.Tensor) -> torch.Tensor:
        batch, head, query, key = indices
        mask = mask_function(batch[:, None, None, None], head[:, None, None], query[:, None], key)
        return mask.expand(batch.shape[0], head.shape[0], query.shape[0], key.shape[0])

    return expanded


def _without_cache(parsed: Any) -> None:
    """Sets a config and those of its parts to keep no keys and values of past tokens: a part asks its own config."""
    parsed.use_cache = False
    for part in vars(parsed).values():
        if hasattr(part, "to_json_string"):
            _without_cache(part)


def _own(parsed: Any, model_class: Any) -> Any:
    """The config that a model class takes: that of its model type, or that of the part which the class implements."""
    wanted = model_class.config_class
    if wanted is None or isinstance(parsed, wanted):
        return parsed
    return next((part for part in vars(parsed).values() if isinstance(part, wanted)), parsed)


def example_inputs(model: torch.nn.Module, config: dict[str, Any]) -> dict[str, Any]:
    """Example inputs by the modalities in the model's signature, see `extraction.examples.inputs`."""
    return examples.by_signature(model, config)


def _harmless(fields: dict[str, Any]) -> dict[str, Any]:
    """Without what makes a library load more than a class of its own: kernels by name, pretrained backbones."""
    kept = {
        key: _harmless(value) if isinstance(value, dict) else value
        for key, value in fields.items()
        if not key.startswith("_") and key not in LOADING
    }
    return {**kept, **{key: False for key in kept.keys() & {"use_pretrained_backbone"}}}


def _own_fields(parsed: Any) -> dict[str, Any]:
    """A config as JSON data without the attributes that its class does not know."""
    default = _default_keys(type(parsed))
    fields = json.loads(parsed.to_json_string(use_diff=False))
    nested = {key: value for key, value in vars(parsed).items() if hasattr(value, "to_json_string")}
    return {
        key: _own_fields(nested[key]) if key in nested else value for key, value in fields.items() if key in default
    }


@functools.cache
def _default_keys(config_class: type) -> frozenset[str]:
    """The fields of a config class, and what its default config computes from them."""
    declared = frozenset(getattr(config_class, "__dataclass_fields__", ())) | {"model_type"}
    with _quiet():
        try:
            return declared | json.loads(config_class().to_json_string(use_diff=False)).keys()
        except Exception:  # some classes have no default config; theirs are the declared fields
            return declared


def _numbers(value: Any) -> Any:
    """With floats that JSON has no form for, which transformers writes as `{"__float__": "Infinity"}`."""
    if isinstance(value, dict):
        if value.keys() == {"__float__"}:
            return float(value["__float__"])
        return {key: _numbers(item) for key, item in value.items()}
    return [_numbers(item) for item in value] if isinstance(value, list) else value


def base_classes() -> dict[str, str]:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return {key: value if isinstance(value, str) else value[0] for key, value in MODEL_MAPPING_NAMES.items()}


def classes(model_type: str) -> list[str]:
    """All classes of a model type that some auto class can make, base first."""
    from transformers.models.auto import modeling_auto

    tables = [modeling_auto.MODEL_MAPPING_NAMES] + [
        table
        for name, table in sorted(vars(modeling_auto).items())
        if name.startswith("MODEL_") and name.endswith("_MAPPING_NAMES")
    ]
    found = [table[model_type] for table in tables if model_type in table]
    names = [name for value in found for name in ([value] if isinstance(value, str) else value)]
    return list(dict.fromkeys(names))


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings about what is unusual in a default config: nothing that a user can change."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(before)


def _close(name: str, choices: Any) -> str:
    close = difflib.get_close_matches(name, list(choices), n=3)
    return f"; did you mean {', '.join(close)}?" if close else ""

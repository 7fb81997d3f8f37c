"""Models of transformers' auto classes, built from default configs. The library is imported by the functions that need
it: importing it takes seconds."""

import difflib
import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from extraction import example_inputs as examples
from extraction.failures import ModelError
from extraction.meta import on_default_device
from extraction.transformers_defaults import completed

LIBRARY = "transformers"

MAX_LAYERS = 2
"""Layers that are kept of a stack of equal ones: further layers repeat the same subgraphs."""

MAX_LAYER_TYPES = 8
"""Layers that are kept at most where the first `MAX_LAYERS` do not show every kind of layer."""

IRRELEVANT = frozenset(
    """_attn_implementation_autoset _commit_hash _name_or_path architectures auto_map
    chunk_size_feed_forward dtype finetuning_task gradient_checkpointing id2label initializer_factor initializer_range
    label2id output_attentions output_hidden_states prefix problem_type return_dict
    task_specific_params tokenizer_class torch_dtype transformers_version use_cache""".split()
)
"""Fields that cannot change the graph of a forward pass in evaluation mode: names, storage, training."""

OF_BACKBONES = frozenset("_out_features _out_indices out_features out_indices stage_names".split())
"""Which of its stages a backbone hands out: nothing to a model by itself, but all to one that it is a part of."""

IRRELEVANT_TOKENS = frozenset(
    """begin_suppress_tokens bos_token_id cls_token_id decoder_start_token_id eos_token_id forced_bos_token_id
    forced_eos_token_id mask_token_id sep_token_id suppress_tokens unk_token_id""".split()
)
"""Tokens that generation and tokenizers use. `pad_token_id` is not among them: embeddings carry it as a constant."""

LOADING = frozenset(
    """attn_implementation auto_map experts_implementation kernel_config quantization_config use_kernels""".split()
)
"""Fields of a config from elsewhere that say how to run a model, or what to load for it: kernels, code, weights."""

LAYER_COUNTS = frozenset(
    """decoder_layers encoder_layers n_layer n_layers num_decoder_layers num_encoder_layers num_hidden_layers
    num_layers""".split()
)
"""Fields that say how many layers a stack has."""


LAYER_NUMBERS = frozenset({"vision_feature_layer", "vision_feature_layers"})
"""Fields that name layers of another config's stack by number, or from its end where that is negative."""

LAST_LAYERS = frozenset({"num_kv_shared_layers"})
"""Fields that count layers from the end of the stack."""

STAGES = frozenset({"depths", "stage_names"})
"""Fields of models that are made of a few stages of different widths."""


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
    return {**completed(model_type, fields), "model_type": model_type, "class": wanted or bases[model_type]}


def of_json(fields: dict[str, Any]) -> dict[str, Any]:
    """The config of a Hub repository's config.json, with all defaults and the class under "class".

    The class is the first of `architectures` that this library has, or the base model where none is named. Only fields
    of the library's own config class are kept: others are notes that no model code reads. Raises ModelError:
    "remote_code" where `auto_map` names code for a type or class that the library does not have, "config" for such a
    type or class without code; else what transformers raises on the fields.
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
    with _quiet():
        parsed = transformers.CONFIG_MAPPING[model_type].from_dict(_numbers(_harmless(fields)))
    return {**_own_fields(parsed), "model_type": model_type, "class": wanted}


def normalise(config: dict[str, Any]) -> dict[str, Any]:
    """The config without what cannot change the graph, and with at most a few layers of each stack.

    Dropped, in nested configs too: `IRRELEVANT` and `IRRELEVANT_TOKENS`; of the label maps their number is kept, and
    that only for task heads. Each of `LAYER_COUNTS` becomes at most `MAX_LAYERS`, or as many as it takes to meet each
    of the config's `layer_types`; lists with one element a layer are cut to match.
    """
    base = config["class"] == base_classes().get(config["model_type"])
    labels = {} if base else {"num_labels": len(config.get("id2label") or {})}
    return {**_reduce(config), **labels}


def build(config: dict[str, Any]) -> torch.nn.Module:
    """The model with random weights. Raises what transformers raises on a config that makes no model."""
    import transformers

    fields = {key: _numbers(value) for key, value in config.items() if key != "class"}
    parsed = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(fields)
    model_class = _model_class(config["class"], type(parsed))
    if not hasattr(model_class, "_from_config"):
        model_class(parsed)  # stands for a class whose libraries are not installed, and says which
    parsed = _own(parsed, model_class)
    parsed.use_cache = False
    # Mixtures of experts by plain batched products: the default calls a kernel that only this library has.
    experts = {"experts_implementation": "batched_mm"} if model_class._can_set_experts_implementation() else {}
    return on_default_device(lambda: model_class._from_config(parsed, **experts))


def _model_class(name: str, config_class: type) -> Any:
    """The model class of this name. A few are only in the module beside that of their config class."""
    import transformers

    if hasattr(transformers, name):
        return getattr(transformers, name)
    return getattr(import_module(config_class.__module__.replace(".configuration_", ".modeling_")), name)


def _own(parsed: Any, model_class: Any) -> Any:
    """The config that a model class takes: that of its type, or of the part that the class is of it."""
    wanted = model_class.config_class
    if wanted is None or isinstance(parsed, wanted):
        return parsed
    return next((part for part in vars(parsed).values() if isinstance(part, wanted)), parsed)


def example_inputs(model: torch.nn.Module, config: dict[str, Any]) -> dict[str, Any]:
    """Example inputs by the modalities in the model's signature, see `extraction.example_inputs`."""
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


def _reduce(config: dict[str, Any], top: bool = True) -> dict[str, Any]:
    """`top`: whether this is a model's own config, not that of a part."""
    dropped = IRRELEVANT | IRRELEVANT_TOKENS | (OF_BACKBONES if top else frozenset())
    kept = {
        key: _reduce(value, False) if isinstance(value, dict) else value
        for key, value in config.items()
        if key not in dropped
    }
    if STAGES & kept.keys():
        return kept  # what such a config counts are stages of different widths, not equal layers
    counts = {key: value for key, value in kept.items() if key in LAYER_COUNTS and isinstance(value, int)}
    layers = _layers_to_keep(kept.get("layer_types"))
    gone = max((value - layers for value in counts.values() if value > layers), default=0)
    for key, value in kept.items():
        if key in counts:
            kept[key] = min(value, layers)
        elif key in LAYER_NUMBERS:
            kept[key] = _number_kept(value)
        elif key in LAST_LAYERS and isinstance(value, int):
            kept[key] = max(0, value - gone)
        elif key == "per_layer_config" and isinstance(value, dict):
            kept[key] = {number: fields for number, fields in value.items() if int(number) < layers}
        elif isinstance(value, list) and len(value) > layers and len(value) in counts.values():
            kept[key] = value[:layers]
    return kept


def _numbers(value: Any) -> Any:
    """With floats that JSON has no form for, which transformers writes as `{"__float__": "Infinity"}`."""
    if isinstance(value, dict):
        if value.keys() == {"__float__"}:
            return float(value["__float__"])
        return {key: _numbers(item) for key, item in value.items()}
    return [_numbers(item) for item in value] if isinstance(value, list) else value


def _number_kept(value: Any) -> Any:
    """A layer's number, or several, in a stack of `MAX_LAYERS`."""
    if isinstance(value, list):
        return [_number_kept(each) for each in value]
    return max(-MAX_LAYERS, min(value, MAX_LAYERS - 1)) if isinstance(value, int) else value


def _layers_to_keep(layer_types: list[str] | None) -> int:
    if not layer_types:
        return MAX_LAYERS
    last_new = max(layer_types.index(kind) for kind in set(layer_types))
    return min(max(MAX_LAYERS, last_new + 1), MAX_LAYER_TYPES)


def base_classes() -> dict[str, str]:
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    return {key: value if isinstance(value, str) else value[0] for key, value in MODEL_MAPPING_NAMES.items()}


def classes(model_type: str) -> list[str]:
    """All classes of a model type that some auto class can make, base first."""
    from transformers.models.auto import modeling_auto

    tables = [modeling_auto.MODEL_MAPPING_NAMES] + [
        table for name, table in sorted(vars(modeling_auto).items()) if name.endswith("_MAPPING_NAMES")
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

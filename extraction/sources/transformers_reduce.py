"""Configs of transformers without what cannot change a graph, and with a few layers of each stack."""

from typing import Any

MAX_LAYERS = 2
"""Layers that are kept of a stack of equal ones: further layers repeat the same subgraphs."""

MAX_LAYER_TYPES = 8
"""Layers that are kept at most where the first `MAX_LAYERS` do not show every kind of layer."""

IRRELEVANT = frozenset(
    """_attn_implementation_autoset _commit_hash _name_or_path architectures auto_map
    chunk_size_feed_forward dtype finetuning_task gradient_checkpointing id2label init_std init_xavier_std
    initializer_factor initializer_range label2id output_attentions output_hidden_states prefix problem_type return_dict
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

LAYER_COUNTS = frozenset(
    """decoder_layers encoder_layers n_layer n_layers num_decoder_layers num_encoder_layers num_hidden_layers
    num_layers""".split()
)
"""Fields that say how many layers a stack has."""

ALIASES = frozenset({"num_blocks"})
"""Fields that are another name of `num_hidden_layers` in a config where both are the same."""

LAYER_NUMBERS = frozenset({"vision_feature_layer", "vision_feature_layers"})
"""Fields that name layers of another config's stack by number, or from its end where that is negative."""

READ_LAYERS = "backbone_out_indices"
"""The field that names layers of the config's own stack whose results a head reads one by one."""

LAST_LAYERS = frozenset({"num_kv_shared_layers"})
"""Fields that count layers from the end of the stack."""

STAGES = frozenset({"depths", "stage_names"})
"""Fields of models that are made of a few stages of different widths."""


def reduced(config: dict[str, Any], top: bool = True) -> dict[str, Any]:
    """The config without what is irrelevant, and with as few layers as show each kind; its parts' configs too.

    `top`: whether this is a model's own config, not that of a part.
    """
    dropped = IRRELEVANT | IRRELEVANT_TOKENS | (OF_BACKBONES if top else frozenset())
    kept = {
        key: reduced(value, False) if isinstance(value, dict) else value
        for key, value in config.items()
        if key not in dropped
    }
    if STAGES & kept.keys():
        return kept  # what such a config counts are stages of different widths, not equal layers
    counts = {key: value for key, value in kept.items() if key in LAYER_COUNTS and isinstance(value, int)}
    counts |= {key: kept[key] for key in ALIASES & kept.keys() if kept[key] == kept.get("num_hidden_layers")}
    layers = _layers_to_keep(kept.get("layer_types"))
    if isinstance(kept.get(READ_LAYERS), list):  # as many layers as are read, and all of them
        layers = max(layers, len(kept[READ_LAYERS]))
        kept[READ_LAYERS] = list(range(len(kept[READ_LAYERS])))
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

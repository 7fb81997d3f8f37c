"""Default configs that make no model as the library has them: the fields that they lack.

These are hooks for the few model types whose config class leaves out what its model needs (a vocabulary, a number of
experts), or has defaults that contradict each other. Sizes are those of a model that the library's documentation of the
class names, or else the smallest that the model takes. They are defaults alone: a config from the Hub says itself what
it is of.
"""

from typing import Any

Config = dict[str, Any]

_ROTARY = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}
_WIDE_ROTARY = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [16, 24, 24]}
_NARROW_ROTARY = {**_ROTARY, "mrope_section": [3, 4, 4]}
_FULL_ATTENTION_ROTARY = {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}

LACKING: dict[str, Config] = {
    "autoformer": {"prediction_length": 24},
    "aya_vision": {"vision_config": {"num_attention_heads": 16}},
    "blip-2": {"image_token_id": 50265},
    "chameleon": {"vocabulary_map": {"<image>": 8711, "IMGIMGA": 4}},
    "cohere_compass": {"text_config": {"rope_parameters": _FULL_ATTENTION_ROTARY}},
    "cohere_compass_text": {"rope_parameters": _FULL_ATTENTION_ROTARY},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "clip_qkv": 8.0}},
    "deepseek_v2": {"num_experts_per_tok": 6},
    "deepseek_ocr2": {
        "text_config": {
            "mlp_layer_types": ["dense", *["sparse"] * 11],
            "num_experts_per_tok": 6,
            "n_group": 1,
            "topk_group": 1,
        }
    },
    "dots1": {"n_shared_experts": 2, "n_routed_experts": 128, "num_experts_per_tok": 6},
    "edgetam": {"vision_config": {"backbone_config": {"architecture": "repvit_m1"}}},
    "edgetam_vision_model": {"backbone_config": {"architecture": "repvit_m1"}},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "glm46v": {"text_config": {"rope_parameters": _ROTARY}},
    "glm4v": {"text_config": {"rope_parameters": _ROTARY}},
    "glm4v_moe": {"text_config": {"rope_parameters": _NARROW_ROTARY}},
    "glm4v_moe_text": {"rope_parameters": _NARROW_ROTARY},
    "glm4v_text": {"rope_parameters": _ROTARY},
    "glm_image": {"text_config": {"rope_parameters": _ROTARY}},
    "glm_image_text": {"rope_parameters": _ROTARY},
    "glmga": {"text_config": {"rope_parameters": _ROTARY}},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "hunyuan_vl": {"text_config": {"head_dim": 128, "rope_parameters": _WIDE_ROTARY}},
    "hunyuan_vl_text": {"head_dim": 128, "rope_parameters": _WIDE_ROTARY},
    "informer": {"prediction_length": 24},
    "instructblip": {"image_token_id": 50265},
    "lfm2_moe": {"num_hidden_layers": 4, "layer_types": ["conv", "conv", "full_attention", "conv"]},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "time_series_transformer": {"prediction_length": 24},
}
"""Model type → fields, merged into the default config."""


def completed(model_type: str, fields: Config) -> Config:
    """A type's default config with what it lacks."""
    return _merged(fields, LACKING.get(model_type, {}))


def _merged(fields: Config, more: Config) -> Config:
    return fields | {
        key: _merged(fields[key], value) if isinstance(value, dict) and isinstance(fields.get(key), dict) else value
        for key, value in more.items()
    }

"""Default configs that make no model as the library has them: the fields that they lack.

These are hooks for the few model types whose config class leaves out what its model needs (a vocabulary, a number of
experts), or has defaults that contradict each other. Sizes are those of a model that the library's documentation of the
class names, or else the smallest that the model takes. Only default configs are completed: a config from the Hub has
all that its model needs.
"""

from typing import Any

Config = dict[str, Any]

_ROTARY = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}
_WIDE_ROTARY = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [16, 24, 24]}
_NARROW_ROTARY = {**_ROTARY, "mrope_section": [3, 4, 4]}
_FULL_ATTENTION_ROTARY = {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}

_HALVING_STAGES = [
    [[3, 96, 96, 1, True]],
    [[3, 96, 96, 2, False], [3, 96, 96, 1, False]],
    [[3, 96, 192, 2, False], *([3, 192, 192, 1, number % 2 == 0] for number in range(6))],
    [[3, 192, 384, 2, False], [3, 384, 384, 1, True], [3, 384, 384, 1, False]],
]
"""Kernel, channels in and out, stride, and whether channels are weighed, by block and stage: the default of the class
is of a recogniser, whose stages keep the width."""

_INDEXER = {
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 256,
    "indexer_budget": 2048,
    "indexer_compress_ratio": 64,
}

LACKING: dict[str, Config] = {
    "autoformer": {"prediction_length": 24},
    "aya_vision": {"vision_config": {"num_attention_heads": 16}},
    "blip-2": {"image_token_id": 50265},
    "chameleon": {"vocabulary_map": {"<image>": 8711, "IMGIMGA": 4}},
    "cohere_compass": {"text_config": {"rope_parameters": _FULL_ATTENTION_ROTARY}},
    "cohere_compass_text": {"rope_parameters": _FULL_ATTENTION_ROTARY},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "clip_qkv": 8.0}},
    "deepseek_ocr2": {
        "text_config": {
            "mlp_layer_types": ["dense", *["sparse"] * 11],
            "num_experts_per_tok": 6,
            "n_group": 1,
            "topk_group": 1,
        }
    },
    "deepseek_v2": {"num_experts_per_tok": 6},
    "diffusion_gemma": {"text_config": {"num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704}},
    "diffusion_gemma_text": {"num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704},
    "dots1": {"n_shared_experts": 2, "n_routed_experts": 128, "num_experts_per_tok": 6},
    "edgetam": {"vision_config": {"backbone_config": {"architecture": "repvit_m1"}}},
    "edgetam_vision_model": {"backbone_config": {"architecture": "repvit_m1"}},
    "emu3": {"vocabulary_map": {"<image>": 151851, "<|extra_200|>": 151850}},
    "esm": {"vocab_size": 33, "pad_token_id": 1, "mask_token_id": 32},
    "glm46v": {"text_config": {"rope_parameters": _ROTARY}},
    "glm4v": {"text_config": {"rope_parameters": _ROTARY}},
    "glm4v_moe": {"text_config": {"rope_parameters": _NARROW_ROTARY}},
    "glm4v_moe_text": {"rope_parameters": _NARROW_ROTARY},
    "glm4v_text": {"rope_parameters": _ROTARY},
    "glm_image": {"text_config": {"rope_parameters": _ROTARY}},
    "glm_image_text": {"rope_parameters": _ROTARY},
    "glmga": {"text_config": {"rope_parameters": _ROTARY}},
    "granite4_vision": {"downsample_rate": "4/8", "deepstack_layer_map": [[-1, 0]]},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "hunyuan_vl": {"text_config": {"head_dim": 128, "rope_parameters": _WIDE_ROTARY}},
    "hunyuan_vl_text": {"head_dim": 128, "rope_parameters": _WIDE_ROTARY},
    "informer": {
        "prediction_length": 24,
        "distil": False,
    },  # a compiler makes masks for the sequence before it is halved
    "instructblip": {"image_token_id": 50265},
    "instructblipvideo": {"video_token_id": 50265},
    "lfm2_moe": {"num_hidden_layers": 4, "layer_types": ["conv", "conv", "full_attention", "conv"]},
    "lw_detr": {"projector_scale_factors": [1.0], "projector_in_channels": [256], "num_feature_levels": 1},
    "ministral": {"head_dim": 128},
    "moonshine_streaming": {"num_key_value_heads": 8},
    "nemotron": {"num_key_value_heads": 8},
    "perception_lm": {
        "vision_config": {"architecture": "vit_pe_core_large_patch14_336", "model_args": {"embed_dim": 1024}}
    },
    "pp_ocrv6_small_det": {
        "backbone_config": {
            "out_features": ["stage1", "stage2", "stage3", "stage4"],
            "out_indices": [1, 2, 3, 4],
            "block_configs": _HALVING_STAGES,
        },
        "layer_list_out_channels": [96, 96, 192, 384],
    },
    "qwen2_5_omni_thinker": {"vision_start_token_id": 151652},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 151652, "text_config": {"head_dim": 128}},
    "qwen4_exp": {"text_config": _INDEXER},
    "qwen4_exp_text": _INDEXER,
    "step3p7": {"text_config": {"sliding_window": 512}},
    "t5gemma2_encoder": {"text_config": {"dropout_rate": 0.0}},
    "time_series_transformer": {"prediction_length": 24},
    "timm_backbone": {"backbone": "resnet18"},
    "uvdoc": {
        "backbone_config": {
            "out_features": ["stage1", "stage2", "stage3", "stage4", "stage5", "stage6"],
            "out_indices": [1, 2, 3, 4, 5, 6],
        }
    },
    "xmod": {"default_language": "en_XX"},
}
"""Model type → fields, merged into the default config."""


def completed(model_type: str, class_name: str, fields: Config) -> Config:
    """A type's default config with what it, and the class that is made of it, lack."""
    whole = _merged(fields, LACKING.get(model_type, {}))
    if class_name.endswith("ForSequenceClassification") and whole.get("pad_token_id") is None:
        return {**whole, "pad_token_id": 0}  # a batch of texts is classified at the last token that is not this one
    return whole


def _merged(fields: Config, more: Config) -> Config:
    return fields | {
        key: _merged(fields[key], value) if isinstance(value, dict) and isinstance(fields.get(key), dict) else value
        for key, value in more.items()
    }

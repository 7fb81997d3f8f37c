"""The models that `run_models.py` measures: built from configs with random weights; nothing is downloaded.

None of them was looked at while `passbench.models` was developed. The first fifteen are of all kinds, so that a short
run has a spread.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

TEXT, IMAGE, SOUND = 128, 224, 16_000
"""Tokens of a text, pixels of an image's side, samples of a sound."""


@dataclass(frozen=True)
class BenchModel:
    """A model: `build()` gives it on the current default device, `inputs(batch)` keyword or positional arguments."""

    name: str
    kind: str
    build: Callable[[], torch.nn.Module]
    inputs: Callable[[int], tuple[tuple, dict[str, Any]]]


def _timm(name: str, kind: str, side: int = IMAGE) -> BenchModel:
    def build() -> torch.nn.Module:
        import timm

        return timm.create_model(name, pretrained=False)

    return BenchModel(f"timm:{name}", kind, build, lambda batch: ((torch.randn(batch, 3, side, side),), {}))


def _transformers(
    name: str, kind: str, model: str, config: str, inputs: Callable[[int], dict[str, Any]], **fields: Any
) -> BenchModel:
    def build() -> torch.nn.Module:
        import transformers

        owner, _, part = model.partition(".")
        built = getattr(transformers, owner)(getattr(transformers, config)(**fields))
        return getattr(built, part) if part else built

    return BenchModel(f"transformers:{name}", kind, build, lambda batch: ((), inputs(batch)))


def _text(batch: int) -> dict[str, Any]:
    return {"input_ids": torch.randint(5, 1000, (batch, TEXT)), "attention_mask": torch.ones(batch, TEXT).long()}


def _decoded(batch: int) -> dict[str, Any]:
    return {"input_ids": torch.randint(5, 1000, (batch, TEXT)), "use_cache": False}


def _encoded(batch: int) -> dict[str, Any]:
    return {"input_ids": torch.randint(5, 1000, (batch, TEXT))}


def _picture_and_text(batch: int) -> dict[str, Any]:
    ids = torch.randint(5, 1000, (batch, 77))
    return {"input_ids": ids, "pixel_values": torch.randn(batch, 3, IMAGE, IMAGE)}


def _picture(batch: int) -> dict[str, Any]:
    return {"pixel_values": torch.randn(batch, 3, IMAGE, IMAGE)}


def _spectrogram(batch: int) -> dict[str, Any]:
    return {"input_features": torch.randn(batch, 80, 3000)}


def _sound(batch: int) -> dict[str, Any]:
    return {"input_values": torch.randn(batch, SOUND)}


_SMALL_DECODER = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 12,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 32_000,
}

MODELS = (
    _timm("resnext50_32x4d", "convolutional"),
    _transformers("bert", "encoder", "BertModel", "BertConfig", _text),
    _timm("beit_base_patch16_224", "transformer"),
    _timm("mobilevit_s", "hybrid", 256),
    _transformers("qwen2", "decoder", "Qwen2ForCausalLM", "Qwen2Config", _decoded, **_SMALL_DECODER),
    _timm("levit_256", "hybrid"),
    _timm("densenet121", "convolutional"),
    _transformers("whisper-encoder", "audio", "WhisperModel.encoder", "WhisperConfig", _spectrogram),
    _timm("nfnet_l0", "convolutional"),
    _timm("pvt_v2_b1", "hybrid"),
    _transformers("clip", "text-image", "CLIPModel", "CLIPConfig", _picture_and_text),
    _timm("inception_v3", "convolutional", 299),
    _transformers("opt", "decoder", "OPTModel", "OPTConfig", _decoded),
    _timm("poolformer_s12", "hybrid"),
    _transformers("wav2vec2", "audio", "Wav2Vec2Model", "Wav2Vec2Config", _sound),
    _timm("cait_xxs24_224", "transformer"),
    _transformers("distilbert", "encoder", "DistilBertModel", "DistilBertConfig", _text),
    _timm("res2net50_26w_4s", "convolutional"),
    _transformers("t5-encoder", "encoder", "T5EncoderModel", "T5Config", _encoded),
    _timm("twins_svt_small", "transformer"),
    _timm("ghostnet_100", "convolutional"),
    _transformers("segformer", "hybrid", "SegformerModel", "SegformerConfig", _picture),
    _timm("xception41", "convolutional", 299),
    _timm("volo_d1_224", "transformer"),
    _transformers(
        "albert",
        "encoder",
        "AlbertModel",
        "AlbertConfig",
        _text,
        hidden_size=768,
        num_attention_heads=12,
        intermediate_size=3072,
    ),
    _timm("hrnet_w18", "convolutional"),
    _timm("eva02_tiny_patch14_224", "transformer"),
    _transformers("electra", "encoder", "ElectraModel", "ElectraConfig", _text),
)
"""In the order in which they are measured."""


def prepared(model: BenchModel, batch: int, dtype: torch.dtype, device: torch.device) -> tuple:
    """The model in evaluation mode with inputs of that batch size, on the device; floating tensors in that dtype.

    Returns (model, args, kwargs).
    """
    torch.manual_seed(0)
    built = model.build().eval().to(device=device, dtype=dtype)
    args, kwargs = model.inputs(batch)

    def moved(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.to(device=device, dtype=dtype if value.is_floating_point() else value.dtype)

    return built, tuple(map(moved, args)), {name: moved(value) for name, value in kwargs.items()}

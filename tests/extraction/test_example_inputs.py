"""Example inputs come from signatures and configs; the models here are made up."""

import pytest
import torch

from extraction.example_inputs import BATCH, TEXT_LENGTH, by_signature, first_parameter
from extraction.failures import ModelError


def model(parameters: str) -> torch.nn.Module:
    """A model whose forward has these parameters."""
    scope: dict = {}
    exec(f"def forward(self, {parameters}): return None", scope)
    return type("Model", (torch.nn.Module,), {"forward": scope["forward"]})()


def shapes(parameters: str, config: dict) -> dict[str, tuple[int, ...]]:
    with torch.device("meta"):
        inputs = by_signature(model(parameters), config)
    assert all(value.device.type == "meta" for value in inputs.values() if isinstance(value, torch.Tensor))
    return {name: tuple(value.shape) for name, value in inputs.items() if isinstance(value, torch.Tensor)}


def test_text_is_as_long_as_positions_allow() -> None:
    ids = "input_ids=None, attention_mask=None"
    assert shapes(ids, {"vocab_size": 9, "max_position_embeddings": 512}) == {
        "input_ids": (BATCH, TEXT_LENGTH),
        "attention_mask": (BATCH, TEXT_LENGTH),
    }
    assert shapes(ids, {"n_positions": 20})["input_ids"] == (BATCH, 20)
    assert shapes(ids, {"text_config": {"max_position_embeddings": 16}})["attention_mask"] == (BATCH, 16)


def test_a_decoder_gets_ids_where_the_model_has_both_sides() -> None:
    parameters = "input_ids=None, decoder_input_ids=None, use_cache=None"
    assert "decoder_input_ids" not in shapes(parameters, {"is_encoder_decoder": False})
    assert shapes(parameters, {"is_encoder_decoder": True})["decoder_input_ids"] == (BATCH, TEXT_LENGTH)
    with torch.device("meta"):
        assert by_signature(model(parameters), {})["use_cache"] is False


@pytest.mark.parametrize(
    ("config", "shape"),
    [
        ({}, (BATCH, 3, 224, 224)),
        ({"image_size": 384, "num_channels": 1}, (BATCH, 1, 384, 384)),
        ({"image_size": [128, 256]}, (BATCH, 3, 128, 256)),
        ({"vision_config": {"image_size": {"height": 96, "width": 64}}}, (BATCH, 3, 96, 64)),
        ({"image_size": 32, "num_frames": 8, "tubelet_size": [2, 16, 16]}, (BATCH, 8, 3, 32, 32)),
    ],
)
def test_images_have_the_config_s_size(config: dict, shape: tuple[int, ...]) -> None:
    assert shapes("pixel_values", config) == {"pixel_values": shape}


@pytest.mark.parametrize(
    ("parameters", "config", "shape"),
    [
        ("input_values", {}, (BATCH, 16_000)),
        ("input_values", {"num_mel_bins": 128, "max_length": 1024}, (BATCH, 1024, 128)),
        ("input_features", {"num_mel_bins": 80, "max_source_positions": 1500}, (BATCH, 80, 3000)),
        ("input_features", {"input_feat_per_channel": 40}, (BATCH, 1_000, 40)),
    ],
)
def test_sound_as_waveform_or_spectrogram(parameters: str, config: dict, shape: tuple[int, ...]) -> None:
    assert shapes(parameters, config) == {parameters: shape}


def test_text_with_images() -> None:
    parameters = "input_ids=None, pixel_values=None, attention_mask=None"
    assert set(shapes(parameters, {})) == {"input_ids", "pixel_values", "attention_mask"}
    assert set(shapes(parameters, {"image_token_id": 5})) == {"input_ids", "attention_mask"}


def test_what_cannot_be_made_is_named() -> None:
    with pytest.raises(ModelError, match=r"no example input can be made for prompt_masks, points") as raised:
        by_signature(model("pixel_values, prompt_masks, points, *args, **kwargs"), {})
    assert raised.value.category == "unsupported_input"
    with pytest.raises(ModelError, match=r"no example input is known among graph_nodes"):
        by_signature(model("graph_nodes=None"), {})
    assert first_parameter(model("image, mask=None")) == "image"

"""Example inputs come from signatures and configs; the models here are made up."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor

from extraction.examples import real_values
from extraction.examples.inputs import BATCH, CHOICES, TEXT_LENGTH, Example, by_signature, first_parameter
from extraction.failures import ModelError


def model(parameters: str) -> torch.nn.Module:
    """A model whose forward has these parameters."""
    scope: dict = {}
    exec(f"def forward(self, {parameters}): return None", scope)
    return type("Model", (torch.nn.Module,), {"forward": scope["forward"]})()


def examples(parameters: str, config: dict) -> dict[str, Example]:
    with torch.device("meta"):
        inputs = by_signature(model(parameters), config)
    found = {name: value for name, value in inputs.items() if isinstance(value, Example)}
    assert all(each.tensor.device.type == "meta" and each.tensor.dim() == len(each.dims) for each in found.values())
    return found


def shapes(parameters: str, config: dict) -> dict[str, tuple[int, ...]]:
    return {name: tuple(each.tensor.shape) for name, each in examples(parameters, config).items()}


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
    ("parameters", "config", "dims"),
    [
        ("input_ids", {}, ("batch", "sequence")),
        ("pixel_values", {}, ("batch", None, "height", "width")),
        ("pixel_values", {"num_frames": 8, "tubelet_size": [2, 16, 16]}, ("batch", "frames", None, "height", "width")),
        ("input_values", {}, ("batch", "samples")),
        ("input_values", {"num_mel_bins": 128, "max_length": 1024}, ("batch", "frames", None)),
        ("input_features", {"num_mel_bins": 80, "max_source_positions": 1500}, ("batch", None, "frames")),
        ("input_features", {}, ("batch", "frames", None)),
    ],
)
def test_dimensions_that_may_change_have_the_field_s_names(
    parameters: str, config: dict, dims: tuple[str | None, ...]
) -> None:
    assert examples(parameters, config)[parameters].dims == dims


def test_the_two_sides_of_a_model_have_lengths_of_their_own() -> None:
    both = examples("input_ids, attention_mask, decoder_input_ids", {"is_encoder_decoder": True})
    assert both["attention_mask"].dims == ("batch", "sequence")
    assert both["decoder_input_ids"].dims == ("batch", "decoder_sequence")


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
    with pytest.raises(ModelError, match=r"no example input can be made for hints, points") as raised:
        by_signature(model("pixel_values, hints, points, *args, **kwargs"), {})
    assert raised.value.category == "unsupported_input"
    with pytest.raises(ModelError, match=r"no example input is known among graph_nodes"):
        by_signature(model("graph_nodes=None"), {})
    assert first_parameter(model("image, mask=None")) == "image"


class EitherSoundOrText(torch.nn.Module):
    """Reads sound where there is some, else text; a mask must be as long as what is read."""

    def forward(self, input_ids=None, input_features=None, attention_mask=None):
        read = input_ids if input_features is None else input_features[..., 0]
        return read if attention_mask is None else read * attention_mask


def test_a_mask_that_the_model_refuses_is_left_out() -> None:
    with torch.device("meta"):
        assert by_signature(EitherSoundOrText(), {}).keys() == {"input_ids", "input_features"}


class SecondLayoutReads(torch.nn.Module):
    """Takes only stacked images, and then reads a value."""

    def forward(self, pixel_values):
        if pixel_values.dim() != 5:
            raise ValueError("expected (batch, images, channels, height, width)")
        return torch.nonzero(pixel_values)


def test_a_layout_is_right_where_only_values_are_missing() -> None:
    with torch.device("meta"):
        images = by_signature(SecondLayoutReads(), {})["pixel_values"]
    assert tuple(images.tensor.shape) == (BATCH, 1, 3, 224, 224)


def test_shapes_in_patches_come_with_their_values() -> None:
    with torch.device("meta"):
        made = by_signature(model("pixel_values=None, target_sizes=None"), {"patch_size": 14, "pooling_kernel_size": 3})
    sizes = made["target_sizes"]
    assert not sizes.is_meta and all(side % 3 == 0 for side in sizes.flatten().tolist())
    patches = int(sizes.prod(1).sum())
    assert tuple(made["pixel_values"].tensor.shape) == (1, 3, 14, patches * 14)


def test_images_that_stand_in_the_text_come_in_no_form() -> None:
    config = {"image_token_id": 3}
    parameters = "input_ids=None, pixel_values=None, spatial_shapes=None, attention_mask=None"
    assert shapes(parameters, config).keys() == {"input_ids", "attention_mask"}


def test_where_kinds_of_tokens_are_told_media_stand_in_the_text() -> None:
    parameters = "input_ids=None, pixel_values=None, target_sizes=None, mm_token_type_ids=None"
    assert shapes(parameters, {}).keys() == {"input_ids"}


class TextForMultipleChoice(torch.nn.Module):
    """Reads its texts one by one."""

    def forward(self, input_ids, attention_mask=None):
        choices = input_ids.shape[1]
        read = input_ids.flatten(0, 1) * attention_mask.flatten(0, 1)
        return read.sum(1).view(-1, choices)


def test_a_choice_is_of_several_texts() -> None:
    with torch.device("meta"):
        made = by_signature(TextForMultipleChoice(), {})
        scores = TextForMultipleChoice()(**{name: each.tensor for name, each in made.items()})
    assert made["input_ids"].dims == made["attention_mask"].dims == ("batch", None, "sequence")
    assert tuple(scores.shape) == (BATCH, CHOICES)


class WideFrames(torch.nn.Module):
    """Asks its mask for values, unless the mask is a fake, and then reads 560 values a frame."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(560, 8)

    def forward(self, input_features, input_features_mask):
        if not isinstance(input_features_mask, FakeTensor) and bool(input_features_mask.all()):
            return None
        return self.linear(input_features)


def test_a_layout_is_wrong_where_the_shapes_behind_the_values_do_not_fit() -> None:
    with torch.device("meta"):
        made = by_signature(WideFrames(), {"num_mel_bins": 80})
    assert tuple(made["input_features"].tensor.shape) == (BATCH, 1000, 560)


class Session:
    """As the models of tracking have one: it keeps the prompts of each object."""

    def __init__(self, video_height, video_width, dtype, inference_device, inference_state_device, **other):
        self.size, self.device = (video_height, video_width), inference_device
        self.points, self.obj_with_new_inputs = {}, []

    def obj_id_to_idx(self, number):
        return number - 1

    def add_point_inputs(self, index, frame, points):
        self.points[index, frame] = points


def test_a_session_is_made_anew_for_each_call() -> None:
    class Tracker(torch.nn.Module):
        def forward(self, inference_session: Session, frame_idx=None, frame=None):
            return inference_session

    made = by_signature(Tracker(), {"image_size": 32})
    prompt, again = made["inference_session"].make(), real_values.with_values(made)["inference_session"].make()
    assert prompt is not again and (prompt.device, again.device) == ("meta", "cpu")
    assert again.size == (32, 32) and again.points.keys() == {(0, 0)} and again.obj_with_new_inputs == [1]
    assert all(each.device.type == "cpu" for each in again.points[0, 0].values())
    assert tuple(made["frame"].tensor.shape) == (3, 32, 32) and made["frame_idx"] == 0

"""Example inputs of a model, by the modalities in its signature and the sizes in its config. No model is named here.

Tensors are made on the current default device; under `torch.device("meta")` they take no memory. Their dimensions that
may have other sizes bear names: `batch`; `sequence` and `decoder_sequence` (tokens), `height` and `width` (pixels),
`frames` (of a video or a spectrogram), `samples` (of a sound).
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from extraction.failures import ModelError

BATCH = 2
"""Items of an example batch. A trace of one item would hold for one alone: dynamo takes sizes 0 and 1 as constants."""
TEXT_LENGTH = 60
"""Tokens of an example text, where the model's positions allow it: a size that no layer has, so that no comparison of
the two can come out equal by chance and fix the length."""
IMAGE_SIZE = 224
"""Height and width of an example image where the config names none, in pixels."""
AUDIO_SAMPLES = 16_000
"""One second of sound at the rate that speech models take."""
AUDIO_FRAMES = 1_000
"""Frames of an example spectrogram where the config names no length: ten seconds in steps of 10 ms."""

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Example:
    """An example tensor. `dims` names the dimensions that may have other sizes; None stands for the others."""

    tensor: torch.Tensor
    dims: tuple[str | None, ...]


def first_parameter(model: torch.nn.Module) -> str:
    """The name of the first parameter of the model's forward."""
    return next(iter(inspect.signature(model.forward).parameters))


def by_signature(model: torch.nn.Module, config: Config) -> dict[str, Any]:
    """Keyword arguments for `model`: an Example for each modality in its signature, and no cache.

    `config` is the model's own config as JSON data. Raises ModelError ("unsupported_input") if the signature asks for
    something that nothing here can make.
    """
    parameters = inspect.signature(model.forward).parameters
    made: dict[str, Any] = {}
    for name, make in MAKERS.items():
        if name in parameters:
            made[name] = make(config)
    if "input_ids" in made and "attention_mask" in parameters:
        ids = made["input_ids"]
        made["attention_mask"] = replace(ids, tensor=torch.empty_like(ids.tensor))
    if "decoder_input_ids" in parameters and config.get("is_encoder_decoder"):
        made["decoder_input_ids"] = replace(_text(config), dims=("batch", "decoder_sequence"))
    if "input_ids" in made and "pixel_values" in made and _find(config, "image_token_id", "image_token_index"):
        # Images stand in the text as tokens whose number the values decide; the text alone is always valid.
        del made["pixel_values"]
    if "use_cache" in parameters:
        made["use_cache"] = False
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty and parameter.kind not in variadic and name not in made
    ]
    if missing:
        raise ModelError("unsupported_input", f"no example input can be made for {', '.join(missing)}")
    if not any(isinstance(value, Example) for value in made.values()):
        raise ModelError("unsupported_input", f"no example input is known among {', '.join(parameters)}")
    return made


def _find(config: Config, *names: str) -> Any:
    """The first of these fields that is set in the config, else in one of its nested configs, else None."""
    for level in _levels(config):
        for name in names:
            if level.get(name) is not None:
                return level[name]
    return None


def _levels(config: Config) -> Iterator[Config]:
    yield config
    for value in config.values():
        if isinstance(value, Mapping):
            yield from _levels(value)


def _text(config: Config) -> Example:
    positions = _find(config, "max_position_embeddings", "n_positions", "max_target_positions")
    length = min(TEXT_LENGTH, positions) if isinstance(positions, int) and positions > 0 else TEXT_LENGTH
    return Example(torch.empty(BATCH, length, dtype=torch.int64), ("batch", "sequence"))


def _image(config: Config) -> Example:
    channels = _find(config, "num_channels", "in_channels", "in_chans") or 3
    size = _find(config, "image_size") or IMAGE_SIZE
    if isinstance(size, Mapping):
        size = (size.get("height", IMAGE_SIZE), size.get("width", IMAGE_SIZE))
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    frames = _find(config, "num_frames")
    if frames and _find(config, "tubelet_size"):
        return Example(
            torch.empty(BATCH, frames, channels, height, width), ("batch", "frames", None, "height", "width")
        )
    return image(channels, height, width)


def image(channels: int, height: int, width: int) -> Example:
    """A batch of images of this size in pixels, channels first."""
    return Example(torch.empty(BATCH, channels, height, width), ("batch", None, "height", "width"))


def _sound(config: Config) -> Example:
    bins, length = config.get("num_mel_bins"), config.get("max_length")
    if bins and length:
        return Example(torch.empty(BATCH, length, bins), ("batch", "frames", None))
    return Example(torch.empty(BATCH, AUDIO_SAMPLES), ("batch", "samples"))


def _spectrogram(config: Config) -> Example:
    """(batch, bins, frames) where the config counts positions after a convolution that halves them, else frames
    first."""
    bins = _find(config, "num_mel_bins", "input_feat_per_channel", "feature_projection_input_dim", "feature_size")
    bins = bins or 80
    positions = config.get("max_source_positions")
    if positions and config.get("num_mel_bins"):
        return Example(torch.empty(BATCH, bins, 2 * positions), ("batch", None, "frames"))
    return Example(torch.empty(BATCH, AUDIO_FRAMES, bins), ("batch", "frames", None))


MAKERS: dict[str, Callable[[Config], Example]] = {
    "input_ids": _text,
    "pixel_values": _image,
    "input_values": _sound,
    "input_features": _spectrogram,
}
"""Parameter name → example, one for each modality."""

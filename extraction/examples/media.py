"""Examples of images, video and sound, from the sizes in a config."""

import inspect
from collections.abc import Mapping

import torch

from extraction.examples.tensors import BATCH, Config, Example, Maker, find, rows, tensor, text_length

IMAGE_SIZE = 224
"""Height and width of an example image where the config names none, in pixels."""
VIDEO_FRAMES = 4
"""Frames of an example video where the config names no number."""
AUDIO_SAMPLES = 16_000
"""One second of sound at the rate that speech models take."""
AUDIO_FRAMES = 1_000
"""Frames of an example spectrogram where the config names no length: ten seconds in steps of 10 ms."""
LATENT_FRAMES = 50
"""Frames of a compressed sound."""
BOXES = 36
"""Regions of an image that a detector has found."""


def image(channels: int, height: int, width: int) -> Example:
    """A batch of images of this size in pixels, channels first."""
    return tensor((BATCH, channels, height, width), ("batch", None, "height", "width"))


def image_size(config: Config) -> tuple[int, int, int]:
    """Channels, height and width of the images that a config tells of."""
    channels = find(config, "num_channels", "in_channels", "in_chans") or 3
    size = find(config, "image_size", "crop_size", "img_size", "max_img_size") or IMAGE_SIZE
    if isinstance(size, Mapping):
        size = (size.get("height", IMAGE_SIZE), size.get("width", IMAGE_SIZE))
    height, width = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    return channels, height, width


def _images(config: Config, model: torch.nn.Module) -> list[Example]:
    if "prompt_pixel_values" in inspect.signature(model.forward).parameters:
        return _prompt(config, model)
    channels, height, width = image_size(config)
    frames = find(config, "num_frames")
    if frames and find(config, "tubelet_size"):
        return _videos(config, model)
    several = [(1,), (2,), (1, 1), (frames or VIDEO_FRAMES,)]  # images of a sample, and tiles of an image
    stacked = [
        tensor((BATCH, *ones, channels, height, width), ("batch", *(None for _ in ones), None, "height", "width"))
        for ones in several
    ]
    # Some defaults name a size that their own windows or pyramids do not divide.
    others = [image(channels, size, size) for size in (IMAGE_SIZE, 336, 512, 4 * height) if size != height]
    return [image(channels, height, width), *stacked, *others]


def _videos(config: Config, model: torch.nn.Module) -> list[Example]:
    channels, height, width = image_size(config)
    frames = find(config, "num_frames", "frames_per_clip") or VIDEO_FRAMES
    sizes = [(height, width), *((size, size) for size in (336, 512) if size != height)]
    return [tensor((BATCH, frames, channels, *size), ("batch", "frames", None, "height", "width")) for size in sizes]


def _sounds(config: Config, model: torch.nn.Module) -> list[Example]:
    bins, length = config.get("num_mel_bins"), config.get("max_length")
    if bins and length:
        return [tensor((BATCH, length, bins), ("batch", "frames", None))]
    wave = tensor((BATCH, AUDIO_SAMPLES), ("batch", "samples"))
    channels = find(config, "audio_channels", "channels") or 1
    stacked = [tensor((BATCH, n, AUDIO_SAMPLES), ("batch", None, "samples")) for n in sorted({1, channels})]
    # Some take a multiple of what makes a token of theirs, and some what another model has made of the sound.
    others = [tensor((BATCH, AUDIO_SAMPLES // 1024 * 1024), ("batch", "samples"))]
    return [wave, *stacked, *others, *rows(find(config, "hidden_size"), LATENT_FRAMES, "frames")]


def _spectrograms(config: Config, model: torch.nn.Module) -> list[Example]:
    """(batch, bins, frames) where the config counts positions after a convolution that halves them, else frames
    first."""
    positions = config.get("max_source_positions")
    if positions and config.get("num_mel_bins"):
        return [tensor((BATCH, config["num_mel_bins"], 2 * positions), ("batch", None, "frames"))]
    inner = find(config, "max_source_positions", "n_window")
    frames = 2 * inner if inner else AUDIO_FRAMES
    layouts = []
    if "input_values" in inspect.signature(model.forward).parameters:  # the same second of sound, in both forms
        layouts = [tensor((BATCH, LATENT_FRAMES, bins), ("batch", "frames", None)) for bins in _bins(config, model)[:1]]
    for bins in _bins(config, model):
        layouts += [
            tensor((BATCH, AUDIO_FRAMES, bins), ("batch", "frames", None)),
            tensor((BATCH, bins, frames), ("batch", None, "frames")),
            tensor((BATCH, 1, AUDIO_FRAMES, bins), ("batch", None, "frames", None)),
        ]
    joined = find(config, "downsample_factor")
    if joined:  # of models that add sound to text, a token to a token: convolutions that halve it come first
        shape = (BATCH, _bins(config, model)[0], 2 * joined * text_length(config))
        layouts.append(tensor(shape, ("batch", None, "frames")))
    return layouts


def _bins(config: Config, model: torch.nn.Module) -> list[int]:
    """Widths that a spectrogram may have, the likeliest first: those that the config names, then that of the first
    layer.

    The first layer's may differ, since some models stack several frames in one.
    """
    names = (
        "num_mel_bins feature_projection_input_dim input_feat_per_channel input_feat_size feature_size input_dim "
        "n_mels mel_bins num_mels"
    )
    named = [find(config, name) for name in names.split()]
    first = next((each for each in model.modules() if isinstance(each, torch.nn.Linear | torch.nn.Conv1d)), None)
    read = first.in_features if isinstance(first, torch.nn.Linear) else first.in_channels if first else None
    return list(dict.fromkeys([*(each for each in named if isinstance(each, int)), 80, 128, *([read] if read else [])]))


def _latents(config: Config, model: torch.nn.Module) -> list[Example]:
    named = [find(config, name) for name in ("latent_dim", "hidden_size", "codebook_dim")]
    return [
        layout
        for width in dict.fromkeys(each for each in named if isinstance(each, int))
        for layout in (
            tensor((BATCH, width, LATENT_FRAMES), ("batch", None, "frames")),
            tensor((BATCH, LATENT_FRAMES, width), ("batch", "frames", None)),
        )
    ]


def hidden(config: Config, model: torch.nn.Module) -> list[Example]:
    """Layouts of what a part of a model reads: sound, the previous part's vectors of sound, or vectors of text."""
    channels = find(config, "channels", "audio_channels") or 1
    return [
        *rows(find(config, "hidden_size"), text_length(config), "sequence"),
        tensor((BATCH, channels, AUDIO_SAMPLES // 1024 * 1024), ("batch", None, "samples")),
        *_latents(config, model),
    ]


def _features(*sizes: str) -> Maker:
    def make(config: Config, model: torch.nn.Module) -> list[Example]:
        width = find(config, *sizes)
        return [tensor((BATCH, BOXES, width), ("batch", "boxes", None))] if width else []

    return make


def _mel(config: Config, model: torch.nn.Module) -> list[Example]:
    return [tensor((BATCH, AUDIO_FRAMES, _bins(config, model)[0]), ("batch", "frames", None))]


def _prompt(config: Config, model: torch.nn.Module) -> list[Example]:
    """An image, or the prompt that the model puts above it: the size in the config is that of both together."""
    channels, height, width = image_size(config)
    return [image(channels, height // 2, width)]


MAKERS: dict[str, Maker] = {
    "pixel_values": _images,
    "pixel_values_videos": _videos,
    "prompt_pixel_values": _prompt,
    "prompt_masks": _prompt,
    "input_values": _sounds,
    "decoder_input_values": lambda config, model: [
        *rows(find(config, "hidden_size"), LATENT_FRAMES, "decoder_frames"),
        *rows(find(config, "num_mel_bins"), LATENT_FRAMES, "decoder_frames"),
    ],
    "input_features": _spectrograms,
    "audio_mel": _mel,
    "latents": _latents,
    "visual_feats": _features("visual_feat_dim"),
    "visual_pos": _features("visual_pos_dim"),
}
"""Parameter name → the layouts of its example."""

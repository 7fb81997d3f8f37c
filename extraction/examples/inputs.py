"""Example inputs of a model, by the modalities in its signature and the sizes in its config. No model is named here.

Tensors are made on the current default device; under `torch.device("meta")` they take no memory. Their dimensions that
may have other sizes bear names: `batch`; `sequence` and `decoder_sequence` (tokens), `height` and `width` (pixels),
`frames` (of a video or a spectrogram), `samples` (of a sound), `steps` (of a series).

A signature and a config may leave the layout of an input open: sound, for example, has a dimension of channels or not.
Then layouts are tried in order, and the first with which the model's forward runs on the meta device is taken.
"""

import inspect
from collections.abc import Collection, Mapping
from itertools import islice, product
from typing import Any

import torch

from extraction.examples import media
from extraction.examples.grids import PATCHED, grid_inputs, patched_inputs
from extraction.examples.media import image
from extraction.examples.meta_device import accepts
from extraction.examples.series import SERIES
from extraction.examples.sessions import Session, session_inputs
from extraction.examples.tensors import (
    BATCH,
    TEXT_LENGTH,
    Config,
    Example,
    Maker,
    find,
    rows,
    tensor,
    text,
    text_length,
)
from extraction.failures import ModelError

__all__ = ["BATCH", "MAKERS", "TEXT_LENGTH", "Example", "by_signature", "first_parameter", "image", "takes"]

MAX_TRIALS = 16
"""Combinations of layouts that are tried on a model at most."""


CHOICES = 4
"""Texts of a multiple choice."""
ACTIONS = 51
"""Rows of an example of embedded actions: a state, and the steps of a plan."""


def first_parameter(model: torch.nn.Module) -> str:
    """The name of the first parameter of the model's forward."""
    return next(iter(inspect.signature(model.forward).parameters))


def by_signature(model: torch.nn.Module, config: Config) -> dict[str, Any]:
    """Keyword arguments for `model`: an Example for each modality in its signature, and no cache.

    What is no Example is passed on as it is: values that the model's control flow reads. `config` is the model's own
    config as JSON data. Raises ModelError ("unsupported_input") if the signature asks for something that nothing here
    can make.
    """
    parameters = inspect.signature(model.forward).parameters
    if type(model).forward is torch.nn.Module.forward:
        raise ModelError("unsupported_input", f"{type(model).__name__} has no forward: its parts are called one by one")
    layouts = _layouts(model, config, parameters)
    fixed = _constants(model, config, parameters, "pixel_values" in layouts)
    required = any(_required(parameters[name]) for name in MASKS.keys() & parameters.keys())
    dtypes = (torch.int64, torch.bool) if required else (torch.int64,)
    combinations = [
        {**made, **_masks(made, parameters, dtype), **fixed}
        for chosen in islice(product(*layouts.values()), MAX_TRIALS)
        for made in [{name: each for name, each in zip(layouts, chosen, strict=True) if each is not None}]
        for dtype in dtypes
    ]
    made = combinations[0]
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    missing = [name for name, each in parameters.items() if _required(each) and each.kind not in variadic]
    missing = [name for name in missing if name not in made]
    if missing:
        raise ModelError("unsupported_input", f"no example input can be made for {', '.join(missing)}")
    if not any(isinstance(value, Example) for value in made.values()):
        raise ModelError("unsupported_input", f"no example input is known among {', '.join(parameters)}")
    if len(combinations) == 1:
        return made
    taken = next((each for each in combinations if takes(model, each)), made)
    optional = {name for name in MASKS.keys() & taken.keys() if not _required(parameters[name])}
    if optional and not takes(model, taken, optional):  # such as a text's mask where sound is read instead of the text
        return {name: each for name, each in taken.items() if name not in optional}
    return taken


def _layouts(model: torch.nn.Module, config: Config, parameters: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Parameter → the layouts that its example may have."""
    made: dict[str, list[Any]] = {}
    for name, maker in MAKERS.items():
        if name in parameters and (_required(parameters[name]) or parameters.keys().isdisjoint(INSTEAD.get(name, ()))):
            made[name] = [each for each in maker(config, model) if each is not None]
    if "input_ids" in made:
        # Media stand in the text as tokens whose number the values decide; the text alone is always valid.
        marked = "mm_token_type_ids" in parameters  # says which tokens are of media; a text alone needs none
        for name, tokens in MEDIA_IN_TEXT.items():
            if name in made and (marked or find(config, *tokens)) and not _required(parameters[name]):
                del made[name]
    answers = type(model).__name__.endswith("ForQuestionAnswering") and "pixel_values" in parameters  # in words
    if "decoder_input_ids" in parameters and (config.get("is_encoder_decoder") or answers):
        made["decoder_input_ids"] = _decoder_ids(config, model)
    made = {name: layouts for name, layouts in made.items() if layouts}
    for name in MEDIA & made.keys():
        if len(made) > 1 and not _required(parameters[name]):
            made[name].append(None)  # some models take one modality at a time
    return made


def _constants(model: torch.nn.Module, config: Config, parameters: Mapping[str, Any], images: bool) -> dict[str, Any]:
    """`images`: whether the model is given any."""
    fixed: dict[str, Any] = {}
    if "use_cache" in parameters:
        fixed["use_cache"] = False
    if any(name in parameters and _required(parameters[name]) for name in ("grid_thw", "image_grid_thw")):
        fixed |= grid_inputs(model, config, parameters)
    if any(images or _required(parameters[name]) for name in PATCHED & parameters.keys()):
        fixed |= patched_inputs(config, parameters)
    return fixed | session_inputs(config, parameters)


def _masks(made: Mapping[str, Any], parameters: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Example]:
    """Masks as long as what they mask."""
    masks = {}
    for mask, masked in MASKS.items():
        of = next((made[name] for name in masked if isinstance(made.get(name), Example)), None)
        if mask not in parameters or of is None:
            continue
        dims = [n for n, dim in enumerate(of.dims) if dim is not None][:2] if of.tensor.dim() > 2 else [0, 1]
        if of.dims[-1] == "sequence":  # a text, or a stack of texts
            dims = list(range(of.tensor.dim()))
        if len(dims) > 1:
            masks[mask] = tensor([of.tensor.shape[n] for n in dims], [of.dims[n] for n in dims], dtype)
    return masks


def takes(model: torch.nn.Module, inputs: Mapping[str, Any], masks: Collection[str] = ()) -> bool:
    """Whether the model's forward runs on the meta device with these inputs, as far as that can be told there. Of
    optional masks, only those in `masks` are given.
    """
    arguments = {name: _argument(each) for name, each in inputs.items()}
    for name in MASKS.keys() & arguments.keys():  # whether a mask masks anything has no answer without values
        if name not in masks and not _required(inspect.signature(model.forward).parameters[name]):
            del arguments[name]
    return accepts(model, arguments)


def _argument(value: Any) -> Any:
    if isinstance(value, Session):
        return value.make()
    return value.tensor if isinstance(value, Example) else value


def _required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty


def _ids(config: Config, model: torch.nn.Module) -> list[Example]:
    """Layouts of token ids.

    A model that reads codes of sound takes several channels, side by side or one under the other. A model for multiple
    choice takes several texts.
    """
    ids, codes = text(config), find(config, "num_codebooks")
    if type(model).__name__.endswith("ForMultipleChoice"):
        return [tensor((BATCH, CHOICES, ids.tensor.shape[1]), ("batch", None, "sequence"), torch.int64)]
    if not isinstance(codes, int):
        return [ids]
    dims = ("batch", "sequence", None)
    channels = [tensor((*ids.tensor.shape, number), dims, torch.int64) for number in (codes, codes + 1)]
    return [ids, *channels, tensor((codes * BATCH, ids.tensor.shape[1]), (None, "sequence"), torch.int64)]


def _decoder_ids(config: Config, model: torch.nn.Module) -> list[Example]:
    """Token ids of the decoder; of several channels where it speaks in codes of sound."""
    ids = text(config, "decoder_sequence")
    channels = find(config, "num_channels", "num_codebooks")
    if not channels:
        return [ids]
    shape = (*ids.tensor.shape, channels)
    return [ids, tensor(shape, ("batch", "decoder_sequence", None), torch.int64)]


def _boxes(config: Config, model: torch.nn.Module) -> list[Example]:
    """Corners of each token's box on the page."""
    corners = find(config, "dim_bbox") or 4
    length = text_length(config)
    return [tensor((BATCH, length, corners), ("batch", "sequence", None), torch.int64)]


def _embeddings(*sizes: str) -> Maker:
    def make(config: Config, model: torch.nn.Module) -> list[Example]:
        return rows(find(config, *sizes), text_length(config), "sequence")

    return make


MAKERS: dict[str, Maker] = {
    "input_ids": _ids,
    "qformer_input_ids": _ids,
    "task_inputs": lambda config, model: [
        tensor((BATCH, find(config, "task_seq_len") or text_length(config)), ("batch", None), torch.int64)
    ],
    "bbox": _boxes,
    "inputs_embeds": _embeddings("hidden_size", "d_model"),
    "encoder_hidden_states": _embeddings("encoder_hidden_size"),
    "inputs": _embeddings("d_model", "hidden_size"),
    "query_embeds": _embeddings("hidden_size"),
    "noise_embeds": _embeddings("hidden_size"),
    "action_embeds": lambda config, model: rows(find(config.get("dit_config", {}), "hidden_size"), ACTIONS, "steps"),
    "context_hidden_states": lambda config, model: rows(
        find(config, "hidden_size") * len(find(config, "target_layer_ids") or [0]), text_length(config), "context"
    ),
    "image_attention_mask": lambda config, model: [
        tensor((BATCH, text_length(config), 1), ("batch", "sequence", None), torch.int64)
    ],
    "hidden_states": media.hidden,
    **media.MAKERS,
    **SERIES,
}
"""Parameter name → the layouts of its example."""

INSTEAD: dict[str, tuple[str, ...]] = {
    "inputs_embeds": ("input_ids", "pixel_values", "input_features", "input_values"),
    "encoder_hidden_states": ("input_ids", "inputs_embeds", "hidden_states"),
    "pixel_values_videos": ("pixel_values", "input_ids"),
    "hidden_states": ("input_ids", "inputs_embeds", "pixel_values", "grid_thw", "image_grid_thw"),
}
"""Parameters that stand in for others, or that few uses need. One gets an example only if it has no default, or if the
signature has none of the parameters that it stands in for."""

MEDIA_IN_TEXT: dict[str, tuple[str, ...]] = {
    "pixel_values": ("image_token_id", "image_token_index"),
    "input_features": ("audio_token_id", "audio_token_index"),
    "input_values": ("audio_token_id", "audio_token_index"),
    "pixel_values_videos": ("video_token_id", "video_token_index"),
}

MEDIA = frozenset({"pixel_values", "pixel_values_videos", "input_values", "input_features"})

MASKS: dict[str, tuple[str, ...]] = {
    "attention_mask": ("input_ids", "inputs_embeds", "states"),
    "qformer_attention_mask": ("qformer_input_ids",),
    "input_features_mask": ("input_features",),
    "feature_attention_mask": ("input_features",),
    "audio_mel_mask": ("audio_mel",),
    "visual_attention_mask": ("visual_feats",),
}
"""Mask → what it masks: the first of these that there is."""

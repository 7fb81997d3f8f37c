"""Examples for encoders of packed images: patches of several images in one sequence, and a grid that says where each
image ends.

Such encoders compute positions and bounds from the grid's values, which a trace does not have. transformers lets a
caller hand these in beforehand (`transformers.vision_utils`: "precomputed before torch.compile tracing"), and that is
what is done here: the encoder runs once on the meta device with a real grid, and what those functions returned is an
input of the trace.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from extraction.examples.tensors import BATCH, Config, Example, find, tensor

SIDE = 16
"""Patches along a side of each example image; it is a multiple of every merge size in use."""


class Bounds:
    """Where the parts of a packed sequence begin and end, or how long they are: numbers that a model splits by.

    It stands for an int tensor of one dimension as far as models use one. `tolist` gives numbers, which a trace takes
    as constants; all else is asked of `tensor`, the same without values.
    """

    def __init__(self, values: tuple[int, ...], tensor: torch.Tensor, minus: torch.Tensor | None = None) -> None:
        self.values = values
        self._tensor = tensor
        self._minus = minus

    @property
    def tensor(self) -> torch.Tensor:
        return self._tensor if self._minus is None else self._tensor - self._minus

    def __getitem__(self, index: slice) -> "Bounds":
        return Bounds(self.values[index], self.tensor[index])

    def __sub__(self, other: "Bounds") -> "Bounds":
        values = tuple(a - b for a, b in zip(self.values, other.values, strict=True))
        return Bounds(values, self.tensor, other.tensor)  # the difference itself is seldom asked for

    def __len__(self) -> int:
        return len(self.values)

    def tolist(self) -> list[int]:
        return list(self.values)

    def cumsum(self, dim: int) -> torch.Tensor:
        return self.tensor.cumsum(dim)

    def to(self, *args: Any, **options: Any) -> "Bounds":
        return self


def grid_inputs(model: torch.nn.Module, config: Config, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for an encoder with a required `grid_thw` or `image_grid_thw`: patches, grid, and what follows
    from the grid. Of the layouts of patches, the first with which the encoder runs; if it runs with none, the first."""
    grid_name = "grid_thw" if "grid_thw" in parameters else "image_grid_thw"
    with torch.device("cpu"):
        grid = torch.tensor([[1, SIDE, SIDE]] * BATCH)
        merge = torch.full((BATCH,), find(config, "spatial_merge_size", "merge_size") or 2)
    values = {grid_name: grid, **({"merge_sizes": merge} if "merge_sizes" in parameters else {})}
    patches = next((name for name in ("hidden_states", "pixel_values") if name in parameters), None)
    given = [{patches: layout} for layout in _patches(config, model)] if patches else [{}]
    tried = (
        (each, *_precomputed(model, each, values, shown)) for shown in (values, _as_inputs(values)) for each in given
    )
    first = None
    for each, shown, ran, known in tried:
        first = first or {**each, **shown, **known}
        if ran:
            return {**each, **shown, **known}
    return first or {}


PATCHED = frozenset({"pixel_position_ids", "spatial_shapes", "target_sizes"})
"""Parameters of encoders that take each image as a row of patches, and its shape besides."""


def patched_inputs(config: Config, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments for an encoder of images as rows of patches: patches, which of them count, and where they are.

    The shapes in patches are passed with their values, which such encoders read.
    """
    channels, size = find(config, "num_channels", "in_channels") or 3, find(config, "patch_size") or 14
    side = SIDE - SIDE % (find(config, "pooling_kernel_size") or 1)
    number = side * side
    made: dict[str, Any] = {
        "pixel_values": tensor((BATCH, number, channels * size * size), ("batch", None, None)),
        "pixel_attention_mask": tensor((BATCH, number), ("batch", None), torch.int64),
        "pixel_position_ids": tensor((BATCH, number, 2), ("batch", None, None), torch.int64),
        "spatial_shapes": torch.tensor([[side, side]] * BATCH, device="cpu"),
    }
    if "target_sizes" in parameters:  # the patches of all images stand side by side, as one image
        made["pixel_values"] = tensor((1, channels, size, BATCH * number * size), (None,) * 4)
        made["target_sizes"] = made["spatial_shapes"]
    return {name: value for name, value in made.items() if name in parameters}


def _patches(config: Config, model: torch.nn.Module) -> Iterator[Example]:
    channels = find(config, "in_channels", "num_channels", "in_chans") or 3
    size, frames = find(config, "patch_size") or 14, find(config, "temporal_patch_size") or 1
    number = BATCH * SIDE * SIDE
    width = channels * frames * size * size
    yield tensor((number, width), (None, None))
    yield tensor((number, channels, size, size), (None,) * 4)
    yield tensor((1, number, width), (None,) * 3)
    yield tensor((1, number, channels, size, size), (None,) * 5)
    yield tensor((number, channels * size * size), (None, None))
    first = next((each for each in model.modules() if isinstance(each, torch.nn.Linear)), None)
    if first is not None:  # some stack patches of several frames, by a number that has another name
        yield tensor((number, first.in_features), (None, None))


def _precomputed(
    model: torch.nn.Module,
    given: Mapping[str, Any],
    values: Mapping[str, torch.Tensor],
    shown: Mapping[str, Any],
) -> tuple[Mapping[str, Any], bool, dict[str, Any]]:
    """`shown`, whether the encoder ran, and what it computed from the grid, by the names under which it takes that.

    `shown` is what the encoder itself sees of the `values`: those, for what it reads in Python, or tensors without
    values, for what it computes on its device.
    """
    found: dict[str, Any] = {}
    arguments = {name: each.tensor if isinstance(each, Example) else each for name, each in {**given, **shown}.items()}
    real = {id(arguments[name]): value for name, value in values.items()}
    try:
        with torch.no_grad(), torch.device("cpu"), _recording(model, found, real):
            model(**arguments)
    except Exception as error:  # a model's forward may raise anything; of values the meta device knows nothing
        return shown, "meta tensor" in str(error), found
    return shown, True, found


def _as_inputs(values: Mapping[str, torch.Tensor]) -> dict[str, Example]:
    return {name: Example(torch.empty_like(value, device="meta"), (None,) * value.dim()) for name, value in
            values.items()}  # fmt: skip


@contextmanager
def _recording(model: torch.nn.Module, found: dict[str, Any], real: Mapping[int, torch.Tensor]) -> Iterator[None]:
    """Inside, the functions of `transformers.vision_utils` that the model's module uses record what they return."""
    from transformers import vision_utils

    module = vars(sys.modules[type(model).__module__])
    used = {name: value for name, value in module.items() if name.startswith("get_vision_")
            and getattr(vision_utils, name, None) is value}  # fmt: skip
    module.update({name: _recorded(value, found, real) for name, value in used.items()})
    try:
        yield
    finally:
        module.update(used)


def _recorded(
    function: Callable[..., Any], found: dict[str, Any], real: Mapping[int, torch.Tensor]
) -> Callable[..., Any]:
    def call(*args: Any, kwargs: dict[str, Any] | None = None, **options: Any) -> Any:
        asked: list[str] = []
        result = function(*(real.get(id(arg), arg) for arg in args), kwargs=_Asked(asked), **options)
        several = result if isinstance(result, tuple) and len(asked) == len(result) else (result,)
        kept = [_as_input(name, value) for name, value in zip(asked, several, strict=False)]
        found.update({name: value for name, value in zip(asked, kept, strict=True) if value is not None})
        plain = tuple(value.tensor if isinstance(value, Example) else value for value in kept)
        return plain if several is result else plain[0]

    return call


class _Asked(dict):
    """An empty mapping that notes the names it is asked for."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.names = names

    def pop(self, name: str, default: Any = None) -> Any:
        self.names.append(name)
        return default


def _as_input(name: str, value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if name.startswith("cu_"):
        return Bounds(tuple(value.tolist()), torch.empty_like(value, device="meta"))
    return Example(torch.empty_like(value, device="meta"), (None,) * value.dim())

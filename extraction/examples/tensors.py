"""What example inputs are made of: tensors with named dimensions, of the sizes that a config names."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

BATCH = 2
"""Items of an example batch. Dynamo takes sizes 0 and 1 as constants, so a batch of one would stay a batch of one."""
TEXT_LENGTH = 60
"""Tokens of an example text, if the model's positions allow it. No layer has this size: were it equal to one by chance,
a
comparison of the two would fix the length."""

Config = Mapping[str, Any]
"""A model's config as JSON data."""


@dataclass(frozen=True)
class Example:
    """An example tensor. `dims` has a name for each dimension that may have another size, and None for the others."""

    tensor: torch.Tensor
    dims: tuple[str | None, ...]


Maker = Callable[[Config, torch.nn.Module], list[Any]]
"""From a config and its model to the layouts that an input may have, the likeliest first; none if nothing is known."""


def tensor(shape: Sequence[int], dims: Sequence[str | None], dtype: torch.dtype = torch.float32) -> Example:
    """An example of this shape."""
    return Example(torch.empty(*shape, dtype=dtype), tuple(dims))


def rows(width: int | None, length: int, dim: str) -> list[Example]:
    """(batch, length, width), where the length is called `dim`; none if the width is not known."""
    return [tensor((BATCH, length, width), ("batch", dim, None))] if width else []


def text(config: Config, dim: str = "sequence") -> Example:
    """Token ids (batch, length)."""
    return tensor((BATCH, text_length(config)), ("batch", dim), torch.int64)


def text_length(config: Config) -> int:
    """`TEXT_LENGTH`, or as many tokens as the model has positions."""
    positions = find(config, "max_position_embeddings", "n_positions", "max_target_positions")
    return min(TEXT_LENGTH, positions) if isinstance(positions, int) and positions > 0 else TEXT_LENGTH


def find(config: Config, *names: str) -> Any:
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

"""Models and inputs with values, for models whose control flow reads tensors: they cannot be traced without.

Weights are random and inputs made up. So the trace takes the branches of one made-up input, which a real run could
take, too. Values come from fixed seeds: the same model gives the same trace.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import torch
from torch.fx.experimental import _config as shape_config

from extraction.examples.grids import Bounds
from extraction.examples.sessions import Session
from extraction.examples.tensors import Example

MAX_BYTES = 4 << 30
"""The most that parameters and buffers of a model with values may take: two such models fit a worker's memory."""

SEED = 0


def size_in_bytes(module: torch.nn.Module) -> int:
    """Bytes of a module's parameters and buffers; on the meta device those that it would take."""
    return sum(each.numel() * each.element_size() for each in [*module.parameters(), *module.buffers()])


def with_weights(make: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    """The module that `make` builds, on the CPU; random weights are the same each time."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(SEED)
        return make()


def all_nonzero() -> AbstractContextManager:
    """Inside, `nonzero` on the meta device says that no element is zero."""
    return shape_config.patch(meta_nonzero_assume_all_nonzero=True)


def with_values(inputs: Mapping[str, Any], end: int | None = None) -> dict[str, Any]:
    """The inputs on the CPU with values: normal noise for floating point, ones for everything else.

    One is a token of every vocabulary, and a mask of ones hides nothing. `end` is the token that texts end with, if
    that matters.
    """
    made = {name: _real(value) for name, value in inputs.items()}
    if end is not None and isinstance(made.get("input_ids"), Example):
        made["input_ids"].tensor[..., -1] = end
    return made


def end_of_text(module: torch.nn.Module) -> int | None:
    """The token at the end of each text that a classifier of texts may look for; None for other models."""
    token = getattr(getattr(module, "config", None), "eos_token_id", None)
    return token if isinstance(token, int) and type(module).__name__.endswith("ForSequenceClassification") else None


def _real(value: Any) -> Any:
    if isinstance(value, Example):
        return replace(value, tensor=_filled(value.tensor))
    if isinstance(value, Session):
        return replace(value, device="cpu")
    if isinstance(value, Bounds):
        return Bounds(value.values, torch.tensor(value.values, dtype=value.tensor.dtype, device="cpu"))
    return value


def _filled(tensor: torch.Tensor) -> torch.Tensor:
    if not tensor.is_meta:
        return tensor
    if tensor.is_floating_point():
        generator = torch.Generator("cpu").manual_seed(SEED)
        return torch.randn(tensor.shape, dtype=tensor.dtype, device="cpu", generator=generator)
    return torch.ones_like(tensor, device="cpu")

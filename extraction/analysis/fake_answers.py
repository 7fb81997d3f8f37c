"""What a fake CPU tensor says of single ops, for graphs that are on meta tensors otherwise.

A graph with one convolution would be propagated on fake tensors altogether, at several times the cost. The ops that are
asked here (`extraction.analysis.meta_kernels.is_asked`) make new memory and change none, so a description of their
operands tells all. The same question is asked once in a process.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch._subclasses import FakeTensorMode


class _Described(NamedTuple):
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def on(self, device: str) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device=device)


class _Plain(NamedTuple):
    """1, 1.0 and True are equal, and an op may refuse one of them."""

    kind: type
    value: Any


def answer(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call on meta tensors, with the layout that fake CPU tensors give it. Raises what the op raises
    that refuses its arguments."""
    told = _told(call, _described(args), tuple((name, _described(value)) for name, value in kwargs.items()))
    return _made(told, "meta")


@lru_cache(maxsize=16_384)
def _told(call: Callable[..., Any], args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]) -> Any:
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        return _described(call(*_made(args, "cpu"), **{name: _made(value, "cpu") for name, value in kwargs}))


def _described(value: Any) -> Any:
    """Arguments or results with descriptions in place of tensors, and tuples in place of lists."""
    if isinstance(value, torch.Tensor):
        return _Described(value.dtype, tuple(value.shape), value.stride())
    return tuple(map(_described, value)) if isinstance(value, tuple | list) else _Plain(type(value), value)


def _made(value: Any, device: str) -> Any:
    if isinstance(value, _Described):
        return value.on(device)
    if isinstance(value, _Plain):
        return value.value
    return tuple(_made(item, device) for item in value) if isinstance(value, tuple) else value

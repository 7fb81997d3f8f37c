"""What a fake CPU tensor says of single ops, for graphs that are on meta tensors otherwise.

A graph with one convolution would be propagated on fake tensors altogether, at several times the cost. The ops that are
asked here (`extraction.analysis.meta_kernels.is_asked`) make new memory and change none, so a description of their
operands tells all. The same question is asked once in a process.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch._subclasses import FakeTensor, FakeTensorMode

_CPU = torch.device("cpu")


class _Described(NamedTuple):
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    def on_meta(self) -> torch.Tensor:
        return torch.empty_strided(self.shape, self.stride, dtype=self.dtype, device="meta")


class _Plain(NamedTuple):
    """1, 1.0 and True are equal, and an op may refuse one of them."""

    kind: type
    value: Any


def answer(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call on meta tensors, with the layout that fake CPU tensors give it. Raises what the op raises
    that refuses its arguments."""
    return _made(_told_by_fake(*_question(call, args, kwargs)), _Described.on_meta)


def remembered(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a call on meta tensors, which is not called again on tensors of the same description."""
    return _made(_told_by_meta(*_question(call, args, kwargs)), _Described.on_meta)


_Question = tuple[Callable[..., Any], tuple[Any, ...], tuple[tuple[str, Any], ...]]


def _question(call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Question:
    return call, _described(args), tuple((name, _described(value)) for name, value in kwargs.items())


@lru_cache(maxsize=16_384)
def _told_by_fake(call: Callable[..., Any], args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]) -> Any:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    mode.cache_enabled = False  # what it remembers of an op costs more than the op, and this function remembers, too

    def fake(tensor: _Described) -> torch.Tensor:
        return FakeTensor(mode, tensor.on_meta(), _CPU)  # what `torch.empty_strided` makes in the mode, but faster

    given, named = _made(args, fake), {name: _made(value, fake) for name, value in kwargs}
    with torch.no_grad(), mode:
        return _described(call(*given, **named))


@lru_cache(maxsize=16_384)
def _told_by_meta(call: Callable[..., Any], args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]) -> Any:
    given = _made(args, _Described.on_meta)
    with torch.no_grad():
        return _described(call(*given, **{name: _made(value, _Described.on_meta) for name, value in kwargs}))


def _described(value: Any) -> Any:
    """Arguments or results with descriptions in place of tensors, and tuples in place of lists."""
    if isinstance(value, torch.Tensor):
        return _Described(value.dtype, tuple(value.shape), value.stride())
    return tuple(map(_described, value)) if isinstance(value, tuple | list) else _Plain(type(value), value)


def _made(value: Any, make: Callable[[_Described], torch.Tensor]) -> Any:
    if isinstance(value, _Described):
        return make(value)
    if isinstance(value, _Plain):
        return value.value
    return tuple(_made(item, make) for item in value) if isinstance(value, tuple) else value

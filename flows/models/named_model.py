"""A model by name: a line of a catalogue, or `module:function` of the user's."""

import importlib
import sys
import traceback
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch

from extraction.examples.real_values import end_of_text, with_values, with_weights
from extraction.examples.tensors import Example
from extraction.sources.catalog import parse_entry
from extraction.sources.registry import FORMS, SOURCES, GraphSource
from extraction.sources.spec import spec_of
from extraction.tracing.trace import build
from storage.errors import PassNetError, in_one_line
from storage.records import dtype_of


class NamedModel(NamedTuple):
    """A model in evaluation mode, and one call of it, all on one device. `batch` is the batch size of the call."""

    name: str
    model: torch.nn.Module
    args: tuple
    kwargs: dict[str, Any]
    batch: int

    @property
    def device(self) -> torch.device:
        """Where its parameters are, or where it has none its call's tensors; the CPU where there is no tensor."""
        given = (x for x in (*self.args, *self.kwargs.values()) if isinstance(x, torch.Tensor))
        first = next(chain(self.model.parameters(), self.model.buffers(), given), None)
        return torch.device("cpu") if first is None else first.device


def is_own(name: str) -> bool:
    """Whether `name` is a function of the user's, not a catalogue's line. Raises PassNetError where it is neither."""
    source, colon, rest = name.partition(":")
    if source in FORMS:
        parse_entry(name)
        return False
    if not colon or not rest.isidentifier():
        raise PassNetError(f"{name!r} is no model: give a catalogue's line such as timm:resnet18, or module:function")
    return True


def named_model(name: str, batch: int | None, dtype: str | None, device: torch.device) -> NamedModel:
    """The model that `name` stands for.

    A catalogue's line, such as `timm:resnet18`, gives it with random weights and made-up inputs; `batch` and `dtype`
    (torch's name) change these. `module:function` calls the user's function, which returns (model, args) or (model,
    args, kwargs) as they shall be; `batch` and `dtype` are refused there. Raises PassNetError for what is not there.
    """
    if not is_own(name):
        return _of_catalog(name, batch, dtype, device)
    if batch is not None or dtype is not None:
        raise PassNetError(f"{name} says itself which batch size and dtype it has: leave out --batch and --dtype")
    model, args, kwargs = _of_function(name)
    made = model.eval().to(device)
    args = tuple(_moved(x, device, None) for x in args)
    kwargs = {key: _moved(x, device, None) for key, x in kwargs.items()}
    first = next((x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor) and x.dim()), None)
    return NamedModel(name, made, args, kwargs, 1 if first is None else first.shape[0])


def _of_catalog(name: str, batch: int | None, dtype: str | None, device: torch.device) -> NamedModel:
    spec = spec_of(parse_entry(name))
    source = SOURCES[spec.source]
    if isinstance(source, GraphSource):
        raise PassNetError(f"{name} is a graph without a model: name a model to make it faster")
    module, examples = build(spec)
    model = with_weights(lambda: source.build(spec.fields).eval())
    values = with_values(examples, end_of_text(module))
    wanted = None if dtype is None else _floating(dtype)
    sizes = {}
    for key, example in values.items():
        if isinstance(example, Example):
            sizes[key] = _batched(example, batch)
    kwargs = {key: _moved(sizes.get(key, value), device, wanted) for key, value in values.items()}
    actual = next((x.shape[0] for x in sizes.values()), 1)
    return NamedModel(name, model.to(device=device, dtype=wanted), (), kwargs, actual)


def _batched(example: Example, batch: int | None) -> torch.Tensor:
    """The example with its dimension `batch` of that size."""
    tensor = example.tensor
    if batch is None or "batch" not in example.dims:
        return tensor
    dim = example.dims.index("batch")
    chosen = torch.arange(batch) % tensor.shape[dim]
    return tensor.index_select(dim, chosen).contiguous()


def _floating(name: str) -> torch.dtype:
    try:
        dtype = dtype_of(name)
    except ValueError:
        raise PassNetError(f"{name!r} is no dtype of torch: use float32, bfloat16 or float16") from None
    if not dtype.is_floating_point:
        raise PassNetError(f"a model's dtype is a floating-point one, not {name}")
    return dtype


def _moved(value: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(device=device, dtype=dtype if dtype is not None and value.is_floating_point() else value.dtype)


def _of_function(name: str) -> tuple[torch.nn.Module, tuple, Mapping[str, Any]]:
    module, _, function = name.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise PassNetError(f"{name!r} cannot be called: {error}") from error
    except Exception as error:  # a module of the user's may raise anything, too
        raise PassNetError(f"{module} cannot be imported: {in_one_line(error)} ({_where(error)})") from error
    if not callable(found):
        raise PassNetError(f"{name!r} cannot be called: it is {_a(found)}")
    try:
        made = found()
    except Exception as error:  # a function of the user's may raise anything
        raise PassNetError(f"{name} raised {in_one_line(error)} ({_where(error)})") from error
    if not isinstance(made, tuple) or len(made) not in (2, 3) or not isinstance(made[0], torch.nn.Module):
        raise PassNetError(f"{name} must return (model, args) or (model, args, kwargs)")
    model, args, *rest = made
    kwargs = rest[0] if rest else {}
    if not isinstance(args, tuple | list) or not isinstance(kwargs, Mapping):
        raise PassNetError(f"{name} returns {_a(args)} as args and {_a(kwargs)} as kwargs: give a tuple and a dict")
    return model, tuple(args), kwargs


def _a(value: object) -> str:
    return f"a value of type {type(value).__name__}"


def _where(error: BaseException) -> str:
    """The file and line that raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}:{last.lineno}"

"""From a spec to graph records: the model on the meta device, captured by `torch._dynamo` with symbolic sizes.

No weights exist and nothing is computed: a trace needs as much memory as the model has Python objects. A model that
cannot do without values is traced on the CPU with random ones (`extraction.examples.real_values`). Dimensions that
`extraction.examples.inputs` names are symbols as far as the model leaves them free; all others are numbers.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from extraction.analysis.plausible_inputs import with_ranges
from extraction.analysis.propagate import Invalid, Propagated, propagate
from extraction.analysis.values import TensorValue
from extraction.classify import classify
from extraction.examples import real_values
from extraction.examples.meta_device import of_meta
from extraction.failures import MAX_MESSAGE, ModelError
from extraction.kernels.lowering import LoweringError, kernels_by_op
from extraction.sources.registry import SOURCES, GraphSource
from extraction.sources.spec import Spec
from extraction.tracing.capture import CaptureSizes, capture
from extraction.tracing.symbolic import stride_like
from storage.graph.record import GraphError
from storage.graph.symbols import size
from storage.graph.targets import TargetError
from storage.records import TracedGraph

Made = tuple[torch.nn.Module, Mapping[str, Any]]
"""A model and its inputs, see `build`."""

_OF_VALUES = frozenset({"data_dependent", "unsupported_input", "graph_break", "internal"})
"""Failures that the meta device may cause: code asks for values, or an operation sees two devices."""


@dataclass(frozen=True)
class Trace:
    """The graphs of one model in the order of their capture, and why dynamo broke off between them.

    `graph_breaks` also names graphs that were left out because a record cannot hold them. `fixed` says why sizes are
    numbers that could have been symbols. `propagated` describes the values of each graph, for `counted`.
    """

    graphs: tuple[TracedGraph, ...]
    graph_breaks: tuple[str, ...]
    fixed: tuple[str, ...] = ()
    propagated: tuple[Propagated | Invalid | None, ...] = ()

    def counted(self) -> list[TracedGraph]:
        """The graphs with their kernels, see `with_kernels`."""
        known = self.propagated or (None,) * len(self.graphs)
        return [with_kernels(graph, each) for graph, each in zip(self.graphs, known, strict=True)]

    @property
    def symbols(self) -> dict[str, int]:
        """The sizes that may change in any of the graphs, by name, with their values in this trace."""
        return {name: size for graph in reversed(self.graphs) for name, size in graph.symbols.items()}

    @property
    def static_reason(self) -> str:
        """Why no size may change; empty where one may."""
        return "" if self.symbols else "; ".join(self.fixed)[:MAX_MESSAGE]


def trace(spec: Spec, model: str) -> Trace:
    """Builds and captures the model of a spec; kernels are not counted yet, see `with_kernels`.

    `model` is the name that the graphs carry. Sizes are symbols, unless the model can be captured, or
    captured in fewer pieces, only with numbers.

    Raises ModelError with the category of what went wrong.
    """
    source = SOURCES[spec.source]
    if isinstance(source, GraphSource):
        return Trace(source.graphs(spec.fields, model), (), ("its graphs are stored, with fixed sizes",))
    try:
        return trace_module(lambda: build(spec), model)
    except ModelError as error:
        if error.category not in _OF_VALUES:
            raise
        return _trace_with_values(spec, model, error)


def _trace_with_values(spec: Spec, model: str, error: ModelError) -> Trace:
    """The trace of a model that the meta device failed with `error`; without values after all if they are too large."""
    module, inputs = build(spec)
    size = real_values.size_in_bytes(module)
    if size <= real_values.MAX_BYTES:
        end = real_values.end_of_text(module)
        return trace_module(
            lambda: (real_values.with_weights(lambda: _module(spec)), real_values.with_values(inputs, end)), model
        )
    if not of_meta(error):
        raise error
    try:
        with real_values.all_nonzero():
            return trace_module(lambda: build(spec), model)
    except ModelError as last:
        what = f"{last}; it is too large to be traced with values ({size / 2**30:.0f} GiB)"
        raise ModelError(last.category, what[-MAX_MESSAGE:]) from last


def trace_module(make: Callable[[], Made], model: str) -> Trace:
    """As `trace`, of the module and the inputs that `make` returns; it is called again to try again."""
    loose = _attempt(make, model, CaptureSizes.ANY)
    if isinstance(loose, Trace) and not loose.graph_breaks:
        return loose
    if isinstance(loose, ModelError) and of_meta(loose):
        raise loose  # of values, which fixed sizes do not give it
    fixed = _attempt(make, model, CaptureSizes.FIXED)
    if isinstance(fixed, ModelError):
        if isinstance(loose, ModelError):
            raise fixed
        return loose
    if _pieces(fixed) >= _pieces(loose):
        return loose
    large = _attempt(make, model, CaptureSizes.LARGE)  # symbols are what this model cannot do with, or not with such
    if _pieces(large) <= _pieces(fixed):
        return large
    reason = loose if isinstance(loose, ModelError) else loose.graph_breaks[0]
    return replace(fixed, fixed=(f"symbolic sizes: {reason}",))


def _pieces(traced: Trace | ModelError) -> float:
    return len(traced.graph_breaks) if isinstance(traced, Trace) else math.inf


def _attempt(make: Callable[[], Made], model: str, sizes: CaptureSizes) -> Trace | ModelError:
    module, inputs = make()  # again: what ran before a failure may have left its tensors in the module
    try:
        return _trace(module, inputs, model, sizes)
    except ModelError as error:
        return error


def _trace(module: torch.nn.Module, inputs: Mapping[str, Any], model: str, sizes: CaptureSizes) -> Trace:
    captured, breaks = capture(module, inputs, sizes)
    graphs: list[TracedGraph] = []
    propagated: list[Propagated | Invalid] = []
    refused: list[str] = []
    fixed: dict[str, None] = {}
    for number, each in enumerate(captured):
        try:
            record = each.record()
        except (GraphError, TargetError) as error:
            refused.append(f"graph {number} is left out: {error}")
            continue
        fixed |= dict.fromkeys(record.fixed)
        if record.graph.ops:
            traced = TracedGraph(
                model, len(graphs), record.graph, record.inputs, symbols=record.symbols, symbolic=record.symbolic
            )
            concrete = traced.concrete
            propagated.append(propagate(concrete, record.inputs))
            ranged = replace(traced, inputs=with_ranges(concrete, record.inputs, propagated[-1]))
            graphs.append(_laid_out(ranged, propagated[-1]))
    if not graphs:
        raise ModelError("graph_break", (refused + breaks + ["the model has no tensor operation"])[0])
    return Trace(tuple(graphs), tuple(breaks + refused), tuple(fixed), tuple(propagated))


def _laid_out(traced: TracedGraph, propagated: Propagated | Invalid) -> TracedGraph:
    """The graph with the strides that `extraction.analysis.propagate` finds, which may differ from dynamo's.

    Dynamo traced on the meta device. Attention lays its result out by device, and views of the result follow it.
    Dropout that does nothing returns its input; dynamo of torch 2.11 makes a copy without gaps of it.
    """
    if not traced.symbols or isinstance(propagated, Invalid):
        return traced
    layouts = list(traced.symbolic)
    known: dict[tuple, tuple[str, ...]] = {}  # shape as text, shape and stride as numbers → stride as text
    for number, (value, layout) in enumerate(zip(propagated.values, traced.symbolic, strict=True)):
        if layout is None or not isinstance(value, TensorValue):
            continue
        shape, stride = layout
        place = (shape, value.shape, value.stride)
        if tuple(size(each, traced.symbols) for each in stride) != value.stride:
            layouts[number] = (shape, stride_like(shape, value.shape, value.stride) or known.get(place, stride))
        else:
            known[place] = stride
    return replace(traced, symbolic=tuple(layouts))


def with_kernels(traced: TracedGraph, propagated: Propagated | Invalid | None = None) -> TracedGraph:
    """The graph with the TorchInductor kernels of each op, or with the reason why they cannot be told.

    `propagated` is what `propagate` says of it, where the caller has it.
    """
    try:
        kernels = kernels_by_op(traced.concrete, traced.inputs, propagated=propagated)
    except LoweringError as error:
        return replace(traced, lowering_error=str(error))
    return replace(traced, kernels=tuple(tuple(sorted(numbers)) for numbers in kernels))


def build(spec: Spec) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The model of a spec in evaluation mode, and its example inputs by parameter name (an `Example`, or a constant);
    all on the meta device.

    Raises ModelError: "config" where the model cannot be built, "unsupported_input" where no inputs can be made, or
    the category that the exception shows.
    """
    source = SOURCES[spec.source]
    with torch.device("meta"):
        module = _module(spec)
        try:
            return module, dict(source.inputs(module, spec.fields))
        except Exception as error:  # so may what reads its signature and config
            raise ModelError(*classify(error, "unsupported_input")) from error


def _module(spec: Spec) -> torch.nn.Module:
    """The model of a spec in evaluation mode, on the current default device. Raises ModelError."""
    try:
        return SOURCES[spec.source].build(spec.fields).eval()
    except Exception as error:  # a model's constructor may raise anything
        raise ModelError(*classify(error, "config")) from error

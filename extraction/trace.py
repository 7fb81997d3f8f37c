"""From a spec to graph records: the model on the meta device, captured by `torch._dynamo`, with static shapes.

No weights exist and nothing is computed: a trace needs as much memory as the model has Python objects.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch._dynamo
from torch import fx
from torch._dynamo.utils import counters

from extraction.classify import classify
from extraction.failures import MAX_MESSAGE, ModelError
from extraction.lowering import LoweringError, kernels_by_op
from extraction.normalise import input_records, normalise
from extraction.plausible import with_ranges
from extraction.sources import SOURCES
from extraction.spec import Spec
from storage.graph import Graph, GraphError
from storage.graph_fx import from_fx
from storage.records import Input, TracedGraph
from storage.targets import TargetError


@dataclass(frozen=True)
class Trace:
    """The graphs of one model in the order of their capture, and why dynamo broke off between them.

    `graph_breaks` also names graphs that were left out because a record cannot hold them.
    """

    graphs: tuple[TracedGraph, ...]
    graph_breaks: tuple[str, ...]


def trace(spec: Spec, model: str) -> Trace:
    """Builds and captures the model of a spec; kernels are not counted yet, see `with_kernels`.

    `model` is the name that the graphs carry.

    Raises ModelError with the category of what went wrong.
    """
    module, inputs = build(spec)
    captured, breaks = capture(module, inputs)
    graphs: list[TracedGraph] = []
    refused: list[str] = []
    for number, each in enumerate(captured):
        try:
            graph, records = each.record()
        except (GraphError, TargetError) as error:
            refused.append(f"graph {number} is left out: {error}")
            continue
        if graph.ops:
            graphs.append(TracedGraph(model, len(graphs), graph, with_ranges(graph, records)))
    if not graphs:
        raise ModelError("graph_break", (refused + breaks + ["the model has no tensor operation"])[0])
    return Trace(tuple(graphs), tuple(breaks + refused))


def with_kernels(traced: TracedGraph) -> TracedGraph:
    """The graph with the TorchInductor kernels of each op, or with the reason why they cannot be told."""
    try:
        kernels = kernels_by_op(traced.graph, traced.inputs)
    except LoweringError as error:
        return replace(traced, lowering_error=str(error))
    return replace(traced, kernels=tuple(tuple(sorted(numbers)) for numbers in kernels))


def build(spec: Spec) -> tuple[torch.nn.Module, dict[str, Any]]:
    """The model of a spec in evaluation mode, and its example inputs by parameter name; all on the meta device.

    Raises ModelError: "config" where the model cannot be built, "unsupported_input" where no inputs can be made, or
    the category that the exception shows.
    """
    source = SOURCES[spec.source]
    with torch.device("meta"):
        try:
            module = source.build(spec.fields).eval()
        except Exception as error:  # a model's constructor may raise anything
            raise ModelError(*classify(error, "config")) from error
        try:
            return module, dict(source.inputs(module, spec.fields))
        except Exception as error:  # so may what reads its signature and config
            raise ModelError(*classify(error, "unsupported_input")) from error


@dataclass(frozen=True)
class Captured:
    """A graph as dynamo captured it; `inputs` are records of its placeholders, or why there are none."""

    module: fx.GraphModule
    inputs: list[Input] | GraphError

    def record(self) -> tuple[Graph, list[Input]]:
        """The graph as a record, and its inputs. Raises GraphError or TargetError where a record cannot hold it."""
        if isinstance(self.inputs, GraphError):
            raise self.inputs
        constants = normalise(self.module)
        return from_fx(self.module.graph), [*self.inputs, *constants]


def capture(module: torch.nn.Module, inputs: dict[str, Any]) -> tuple[list[Captured], list[str]]:
    """The graphs that dynamo captures while `module(**inputs)` runs without gradients, and its graph breaks.

    Raises ModelError where dynamo or the model fails.
    """
    captured: list[Captured] = []

    def collect(graph: fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        try:  # dynamo forgets where its inputs came from once this returns
            records: list[Input] | GraphError = input_records(graph.graph, examples)
        except GraphError as error:
            records = error
        captured.append(Captured(graph, records))
        return graph.forward

    torch._dynamo.reset()
    counters.clear()
    with torch.no_grad():
        try:
            torch.compile(module, backend=collect, dynamic=False)(**inputs)
        except Exception as error:  # a model's forward may raise anything
            raise ModelError(*classify(error)) from error
    return captured, [_reason(text) for text in counters["graph_break"]]


def _reason(text: str) -> str:
    """A graph break's title and explanation in one line, without dynamo's hints to the programmer."""
    return " ".join(text.partition("  Hint:")[0].split())[:MAX_MESSAGE]

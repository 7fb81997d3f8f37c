"""The float dtype of a subgraph exchanged for another: in its inputs, its outputs and its constants."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

import torch

from storage.graph.record import Graph, Op, Value
from storage.records import Input, Output, Variant, dtype_of

EXCHANGED = ("float32", "float16", "bfloat16")
"""The dtypes that varying casts a subgraph to."""

Described = TypeVar("Described", Input, Output)


def float_dtype(variant: Variant) -> str | None:
    """The dtype of `EXCHANGED` that inputs and constants of the subgraph have; None if there is none, or several."""
    found = {each.dtype for each in variant.inputs} & {*EXCHANGED}
    if len(found) != 1:
        return None
    (dtype,) = found
    others = {dtype_of(each) for each in EXCHANGED} - {dtype_of(dtype)}
    return dtype if not any(_mentions((op.args, op.kwargs), others) for op in variant.graph.ops) else None


def exchanged(variant: Variant, old: str, new: str) -> Variant:
    """The subgraph with dtype `new` wherever `old` stands."""
    return variant.with_changes(
        graph=exchanged_graph(variant.graph, old, new),
        inputs=exchanged_records(variant.inputs, old, new),
        outputs=exchanged_records(variant.outputs, old, new),
    )


def exchanged_graph(graph: Graph, old: str, new: str) -> Graph:
    """The graph with the constant `new` wherever `old` stands."""
    of = {dtype_of(old): dtype_of(new)}
    ops = tuple(Op(op.kind, op.target, _constants(op.args, of), _constants(op.kwargs, of)) for op in graph.ops)
    return Graph(graph.inputs, ops, graph.output)


def exchanged_records(records: Iterable[Described], old: str, new: str) -> tuple[Described, ...]:
    """Inputs or outputs with dtype `new` in place of `old`."""
    return tuple(replace(each, dtype=new) if each.dtype == old else each for each in records)


def _constants(value: Value, of: dict[torch.dtype, torch.dtype]) -> Any:
    if isinstance(value, torch.dtype):
        return of.get(value, value)
    if type(value) in (tuple, list):
        return type(value)(_constants(item, of) for item in value)
    if isinstance(value, dict):
        return {key: _constants(item, of) for key, item in value.items()}
    return value


def _mentions(value: Value, dtypes: set[torch.dtype]) -> bool:
    if type(value) in (tuple, list):
        return any(_mentions(item, dtypes) for item in value)
    if isinstance(value, dict):
        return any(_mentions(item, dtypes) for item in value.values())
    return isinstance(value, torch.dtype) and value in dtypes

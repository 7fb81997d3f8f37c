"""A symbolic subgraph put at a shape point: numbers in place of its expressions, and bounds of indices that follow."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from extraction.analysis.propagate import Propagated
from extraction.analysis.value_ranges import Interval, required
from storage.graph.record import Graph, GraphError
from storage.graph.symbols import at, names, size, symbols_of
from storage.records import Input, Variant, dtype_of

MAX_ELEMENTS = 1 << 40
"""Of one input; more is an expression gone wrong."""


def named_symbols(variant: Variant) -> dict[str, int]:
    """The symbols that the inputs' shapes and strides or the graph's constants name, with their sizes in the trace.

    Raises GraphError if one has no size.
    """
    found = set(symbols_of(variant.graph))
    for each in variant.inputs:
        for expression in (*(each.symbolic_shape or ()), *(each.symbolic_stride or ())):
            found |= names(expression)
    if unknown := sorted(found - variant.symbols.keys()):
        raise GraphError(f"no size is given for the symbols {', '.join(unknown)}")
    return {name: variant.symbols[name] for name in variant.symbols if name in found}


def placed(variant: Variant, sizes: Mapping[str, int]) -> tuple[Graph, tuple[Input, ...]]:
    """Graph and inputs of a subgraph where its symbols have these sizes; ranges stay those of the trace.

    Raises GraphError where an expression has no value there, or a dimension is empty, negative or beyond all bounds.
    """
    return at(variant.graph, sizes), tuple(_input(each, sizes) for each in variant.inputs)


def _input(each: Input, sizes: Mapping[str, int]) -> Input:
    if each.symbolic_shape is None:
        return each
    shape = tuple(size(expression, sizes) for expression in each.symbolic_shape)
    if any(new < 1 and old > 0 for new, old in zip(shape, each.shape, strict=True)) or min(shape, default=0) < 0:
        raise GraphError(f"{each.name} has the empty shape {shape} at {dict(sizes)}")
    if math.prod(shape) > MAX_ELEMENTS:
        raise GraphError(f"{each.name} has the shape {shape} at {dict(sizes)}")
    stride = each.stride
    if each.symbolic_stride is not None:
        stride = tuple(size(expression, sizes) for expression in each.symbolic_stride)
    if min(stride, default=0) < 0:
        raise GraphError(f"{each.name} has the stride {stride} at {dict(sizes)}")
    return replace(each, shape=shape, stride=stride)


def with_bounds(
    graph: Graph, inputs: Sequence[Input], propagated: Propagated, traced: Sequence[Interval]
) -> tuple[Input, ...]:
    """`inputs` of a graph at a point with integer ranges that hold there.

    `traced` are the needs (`extraction.analysis.value_ranges.required`) at the point of the trace. A bound that was the
    need there is the need here; any other stays, as far as the need here allows.
    """
    needs = required(graph, propagated.values)
    return tuple(
        each if each.high is None or dtype_of(each.dtype).is_floating_point else _bounded(each, old, new)
        for each, old, new in zip(inputs, traced, needs, strict=False)
    )


def _bounded(each: Input, old: Interval, new: Interval) -> Input:
    low = new.low if each.low == old.low else max(each.low, new.low)
    high = new.high if each.high == old.high else min(each.high, new.high)
    return replace(each, low=low, high=max(low, high))

"""Variants: the same subgraph on other input dtypes, each checked by fake-tensor propagation.

All float inputs of a subgraph are cast together. Constants in the graph (`.to(torch.float32)`, `dtype=` arguments) stay
as they are, as they would in a model cast with `model.to(dtype)`; where a float constant does not fit the dtype (a mask
of the lowest float32), there is no variant. A subgraph that takes or mentions float64 or complex
numbers keeps its dtypes: it wants that precision.

Shape variants join here once graphs are traced with symbolic dimensions: `variants_of` yields one input list a point.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from extraction.propagate import Invalid, outputs_of, propagate
from storage.graph import Graph, Value
from storage.records import Input, Variant, dtype_of

DTYPES = ("float32", "float16", "bfloat16")
_KEPT = frozenset((torch.float64, torch.complex32, torch.complex64, torch.complex128))
_KEEPING_METHODS = frozenset(("double", "cdouble", "cfloat", "chalf"))


@dataclass(frozen=True)
class VaryResult:
    """`dropped` counts by "dtype: cause" the variants that are not valid."""

    variants: tuple[Variant, ...]
    dropped: Counter[str]


def vary_all(variants: Iterable[Variant], dtypes: Sequence[str] = DTYPES) -> VaryResult:
    """Every valid variant of each subgraph."""
    dropped: Counter[str] = Counter()
    return VaryResult(tuple(v for variant in variants for v in vary(variant, dropped, dtypes)), dropped)


def vary(variant: Variant, dropped: Counter[str], dtypes: Sequence[str] = DTYPES) -> Iterator[Variant]:
    """Yields the valid variants of one subgraph, in the order of `dtypes`; counts the others in `dropped`."""
    largest = max((_largest((op.args, op.kwargs)) for op in variant.graph.ops), default=0.0)
    for label, inputs in variants_of(variant, dtypes):
        if inputs == variant.inputs:  # it ran like this in its model
            yield variant
            continue
        if label in dtypes and largest > torch.finfo(dtype_of(label)).max:
            dropped[f"{label}: a constant does not fit"] += 1
            continue
        propagated = propagate(variant.graph, inputs)
        if isinstance(propagated, Invalid):
            dropped[f"{label}: {propagated.cause}"] += 1
            continue
        outputs = outputs_of(variant.graph, propagated)
        if outputs is None:
            dropped[f"{label}: something other than a tensor comes out"] += 1
            continue
        yield variant.with_changes(inputs=inputs, outputs=outputs)


def variants_of(variant: Variant, dtypes: Sequence[str]) -> Iterator[tuple[str, tuple[Input, ...]]]:
    """Yields a label and the inputs of each point to try."""
    has_floats = any(dtype_of(i.dtype).is_floating_point for i in variant.inputs)
    kept = any(dtype_of(i.dtype) in _KEPT for i in variant.inputs) or _mentions_kept(variant.graph)
    if kept or not has_floats:
        yield "as traced", variant.inputs
        return
    for dtype in dtypes:
        yield (
            dtype,
            tuple(replace(i, dtype=dtype) if dtype_of(i.dtype).is_floating_point else i for i in variant.inputs),
        )


def _mentions_kept(graph: Graph) -> bool:
    return any(
        (op.kind == "method" and op.target in _KEEPING_METHODS) or _holds_kept((op.args, op.kwargs)) for op in graph.ops
    )


def _holds_kept(value: Value) -> bool:
    if isinstance(value, tuple | list):
        return any(_holds_kept(item) for item in value)
    if isinstance(value, dict):
        return any(_holds_kept(item) for item in value.values())
    return isinstance(value, torch.dtype) and value in _KEPT


def _largest(value: Value) -> float:
    """The largest finite magnitude among the float constants of a value."""
    if isinstance(value, tuple | list):
        return max((_largest(item) for item in value), default=0.0)
    if isinstance(value, dict):
        return _largest(tuple(value.values()))
    return abs(value) if isinstance(value, float) and math.isfinite(value) else 0.0

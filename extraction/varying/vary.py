"""Variants: the same subgraph on other dtypes and at other shape points, each checked by fake-tensor propagation.

All float inputs of a subgraph are cast together; what that makes of its constants is in `extraction.varying.casts`.
Where a float constant does not fit the dtype (a mask of the lowest float32), there is no variant.

A subgraph whose shapes or constants follow symbols is tried at the points of `extraction.varying.shape_points`:
constants, shapes and strides are its expressions there, and bounds of indices follow.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from extraction.analysis.dtype_rules import largest_constant
from extraction.analysis.footprint import footprint
from extraction.analysis.index_overrun import overruns
from extraction.analysis.propagate import Invalid, Propagated, outputs_of, propagate
from extraction.analysis.value_ranges import required
from extraction.varying.at_point import named_symbols, placed, with_bounds
from extraction.varying.casts import casts_back, dtypes_of, with_casts_back
from extraction.varying.shape_points import MAX_POINTS, points
from storage.graph.record import Graph, GraphError
from storage.records import Input, Output, Variant, dtype_of

DTYPES = ("float32", "float16", "bfloat16")
MAX_BYTES = 2 << 30
"""Of inputs, intermediates and outputs of a variant together, on the dtypes of its model."""


@dataclass(frozen=True)
class _Cast:
    """A subgraph's inputs in one dtype. `back` are its casts back to the model's dtype (`extraction.varying.casts`).
    `same_layout`: its outputs lie in memory as those of the model's dtypes do."""

    label: str
    back: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    same_layout: bool


@dataclass(frozen=True)
class _Placed:
    """A subgraph at one shape point, on the dtypes of its model."""

    graph: Graph
    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    propagated: Propagated


def vary(
    variant: Variant,
    dropped: Counter[str],
    dtypes: Sequence[str] = DTYPES,
    limit: int = MAX_POINTS,
    max_bytes: int = MAX_BYTES,
) -> Iterator[Variant]:
    """Yields the valid variants of one subgraph at up to `limit` shape points, the dtypes in their order at each.

    The point of the trace comes first, then the others from small to large. `dropped` counts what is not valid.

    Dtypes are propagated at the point of the trace alone, and points on the dtypes of the model alone: D + P
    propagations, not D × P. For whether an op takes a dtype does not depend on sizes, and shapes do not depend on
    dtypes. Strides depend on the dtype if an op has a kernel of its own for it: such dtypes are propagated at every
    point.
    """
    try:
        symbols = named_symbols(variant)
        base = _place(variant, variant.symbols)
    except GraphError:
        dropped["as traced: expression"] += 1
        return
    if isinstance(base, str):
        dropped[f"as traced: {base}"] += 1
        return
    casts = list(_casts(base, dtypes, dropped))
    needs = required(base.graph, base.propagated.values)
    seen: list[tuple] = []
    for number, sizes in enumerate(points(symbols, limit)):
        where = "point" if number else "as traced"
        try:
            here = _place(variant, {**variant.symbols, **sizes}) if number else base
        except GraphError:
            here = "expression"
        if isinstance(here, str):
            dropped[f"{where}: {here}"] += len(casts)
            continue
        identity = (here.graph, [(i.shape, i.stride) for i in here.inputs])
        if identity in seen:
            continue
        seen.append(identity)
        if footprint(here.propagated) > max_bytes:
            dropped[f"{where}: too large"] += len(casts)
            continue
        if number:
            here = replace(here, inputs=with_bounds(here.graph, here.inputs, here.propagated, needs))
        for cast in casts:
            inputs = tuple(replace(i, dtype=d) for i, d in zip(here.inputs, cast.inputs, strict=True))
            graph = with_casts_back(here.graph, cast.back, cast.label)
            outputs = _outputs(here, graph, inputs, cast)
            if isinstance(outputs, str):
                dropped[f"{cast.label} at a point: {outputs}"] += 1
            else:
                yield variant.with_changes(graph=graph, inputs=inputs, outputs=outputs, symbols=sizes)


def _place(variant: Variant, sizes: Mapping[str, int]) -> _Placed | str:
    """The subgraph at a point, or why it is not valid there. Raises GraphError as `at_point.placed` does."""
    graph, inputs = placed(variant, sizes)
    propagated = propagate(graph, inputs)
    if isinstance(propagated, Invalid):
        return propagated.cause
    if overruns(graph, inputs, propagated):
        return "an index beyond its table"
    outputs = outputs_of(graph, propagated)
    return "something other than a tensor comes out" if outputs is None else _Placed(graph, inputs, outputs, propagated)


def _casts(base: _Placed, dtypes: Sequence[str], dropped: Counter[str]) -> Iterator[_Cast]:
    """The dtypes that the subgraph takes; `dropped` counts the others."""
    for label, inputs in dtypes_of(base.graph, base.inputs, dtypes):
        outputs: tuple[Output, ...] | str = base.outputs
        back: tuple[int, ...] = ()
        if inputs != base.inputs:
            back = casts_back(base.graph, base.inputs, inputs, label)
            outputs = _check(with_casts_back(base.graph, back, label), inputs, label)
        if isinstance(outputs, str):
            dropped[f"{label}: {outputs}"] += 1
            continue
        same = [(o.shape, o.stride) for o in outputs] == [(o.shape, o.stride) for o in base.outputs]
        yield _Cast(label, back, tuple(i.dtype for i in inputs), tuple(o.dtype for o in outputs), same)


def _outputs(here: _Placed, graph: Graph, inputs: tuple[Input, ...], cast: _Cast) -> tuple[Output, ...] | str:
    """The outputs at a point on the dtypes of a cast, or why there are none."""
    if cast.same_layout:
        return tuple(replace(o, dtype=d) for o, d in zip(here.outputs, cast.outputs, strict=True))
    return _check(graph, inputs, cast.label)


def _check(graph: Graph, inputs: tuple[Input, ...], label: str) -> tuple[Output, ...] | str:
    """The outputs on these inputs, or why they are not valid."""
    if largest_constant(graph) > torch.finfo(dtype_of(label)).max:
        return "a constant does not fit"
    propagated = propagate(graph, inputs)
    if isinstance(propagated, Invalid):
        return propagated.cause
    return outputs_of(graph, propagated) or "something other than a tensor comes out"

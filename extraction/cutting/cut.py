"""Traced graphs → subgraphs of the three categories, each a `Variant` on the shapes that the model has there.

Each graph is cut by itself, in two passes over the corpus, so no pass holds more than one graph:
`cut_graph` yields a graph's `sole_op` and `fusible` subgraphs and `tokens` its text; when all texts are in
`extraction.cutting.typical.Texts`, `cut_typical` yields the `typical` ones of each graph.

A subgraph must compute alone what it computes in its model. So these are not cut, and are counted by cause:

- ops that draw random numbers, enter or leave a context, or run under autocast;
- ranges across whose border something other than a tensor goes;
- ranges that change memory which others see: the model's parameters, buffers and inputs, or a value made before the
  range and read after it.

If sizes of a model's inputs have names, constants and input shapes of a subgraph are expressions of these names. A
subgraph in which nothing names a size has fixed sizes.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

from extraction.analysis.prepared import Prepared, prepare
from extraction.analysis.propagate import Invalid
from extraction.analysis.value_ranges import Interval, drawn_from, required
from extraction.analysis.values import TensorValue
from extraction.cutting.borders import memory_problem, within_tensors
from extraction.cutting.plateaus import MAX_OPS, plateaus
from extraction.cutting.typical import MIN_OPS as MIN_TYPICAL_OPS
from storage.graph.record import Cut, cut
from storage.graph.symbols import at, names, symbols_of
from storage.records import Input, Output, Source, TracedGraph, Variant


def cut_graph(traced: TracedGraph, dropped: Counter[str]) -> Iterator[Variant]:
    """Yields the sole_op and fusible subgraphs of one graph; `dropped` counts what is left out, by cause."""
    ready = prepare(traced)
    if isinstance(ready, Invalid):
        dropped[f"graph: {ready.cause}"] += 1
        return
    dropped.update(f"op: {barrier}" for barrier in ready.barriers if barrier is not None)
    yield from _kept(ready, "sole_op", sole_ops(ready, dropped), dropped)
    if traced.kernels is None:
        dropped["fusible: graph without kernel counts"] += 1
    else:
        yield from _kept(ready, "fusible", fusible_ranges(ready), dropped)


def cut_typical(traced: TracedGraph, ranges: Sequence[tuple[int, int]], dropped: Counter[str]) -> Iterator[Variant]:
    """Yields the typical subgraphs of one graph: ops `[start, end)` of each range, as `Texts.repeats` finds them.

    A graph that does not propagate has none; `cut_graph` counts it.
    """
    ready = prepare(traced) if ranges else None
    if isinstance(ready, Prepared):
        yield from _kept(ready, "typical", ranges, dropped)


def sole_ops(prepared: Prepared, dropped: Counter[str]) -> Iterator[tuple[int, int]]:
    """The range of each op that computes on tensors."""
    for op, barrier in enumerate(prepared.barriers):
        if barrier is None and prepared.computes(op):
            yield op, op + 1
        elif barrier is None:
            dropped["sole_op: computes nothing (a view, a size, an identity)"] += 1


def fusible_ranges(prepared: Prepared) -> Iterator[tuple[int, int]]:
    """The kernel-count plateaus (`extraction.cutting.plateaus`) of the kernels that TorchInductor's schedule has.

    An op joins a range only if it reads what the range computes, or computes as many elements from an operand that the
    range reads, too. The schedule may put other ops into the range's kernel because of a later op; up to that op the
    range would need a kernel more.
    """
    needs = [prepared.kernels(op) for op in range(len(prepared.graph.ops))]
    return plateaus(
        len(needs),
        costs=lambda op: bool(needs[op]),
        joins=lambda start, op: needs[op] <= needs[start] and prepared.is_connected(start, op),
        barred=lambda op: prepared.barriers[op] is not None,
    )


def _needing(prepared: Prepared, start: int, end: int) -> int:
    return sum(bool(prepared.kernels(op)) for op in range(start, end))


def _kept(
    prepared: Prepared, category: str, ranges: Iterable[tuple[int, int]], dropped: Counter[str]
) -> Iterator[Variant]:
    for start, end in ranges:
        variant = cut_range(prepared, category, start, end)
        if isinstance(variant, Variant):
            yield variant
        else:
            dropped[f"{category}: {variant}"] += 1


def cut_range(prepared: Prepared, category: str, start: int, end: int) -> Variant | str:
    """The subgraph of ops `[start, end)`, moved so that only tensors cross its border; or why there is none."""
    moved = within_tensors(prepared, start, end)
    if moved is None or not _is_enough(prepared, category, *moved):
        return "something other than a tensor crosses the border"
    start, end = moved
    problem = memory_problem(prepared, start, end)
    if problem:
        return problem
    traced, values = prepared.traced, prepared.propagated.values
    part = cut(traced.graph, start, end, prepared.last)
    if not part.inputs:
        return "no input"
    outputs = [values[number] for number in part.outputs]
    if not all(isinstance(value, TensorValue) for value in outputs):
        return "no tensor comes out"
    symbols = _symbols(traced, part)
    needed_kernels = None if traced.kernels is None else {k for op in traced.kernels[start:end] for k in op}
    inputs = inputs_of(prepared, part, start, end)
    return Variant(
        category=category,
        graph=part.graph,
        inputs=tuple(_symbolic(traced, n, i) if symbols else i for n, i in zip(part.inputs, inputs, strict=True)),
        outputs=tuple(Output(value.dtype, value.shape, value.stride) for value in outputs),
        sources=(Source(traced.source, start, end),),
        kernels=None if needed_kernels is None else len(needed_kernels),
        symbols=symbols,
    )


def _symbols(traced: TracedGraph, part: Cut) -> dict[str, int]:
    """The sizes that a part's constants and its inputs' shapes and strides follow, with their values in the trace."""
    if not traced.symbols:
        return {}
    found = set(symbols_of(part.graph))
    for number in part.inputs:
        for expressions in traced.symbolic[number] or ():
            found.update(*map(_names, expressions))
    return {name: size for name, size in traced.symbols.items() if name in found}


_names = lru_cache(maxsize=65_536)(names)


def _symbolic(traced: TracedGraph, number: int, given: Input) -> Input:
    shape, stride = traced.symbolic[number]
    return replace(given, symbolic_shape=shape, symbolic_stride=stride)


def inputs_of(prepared: Prepared, part: Cut, start: int, end: int) -> tuple[Input, ...]:
    """Records of what goes into a part, ops `[start, end)` of the graph, at the sizes of the trace.

    Raises ValueError where something other than a tensor goes in.
    """
    values = prepared.propagated.values
    if not all(isinstance(values[number], TensorValue) for number in part.inputs):
        raise ValueError("something other than a tensor goes in")
    infos = [values[n] for n in (*part.inputs, *range(prepared.inputs + start, prepared.inputs + end))]
    needs = required(at(part.graph, prepared.traced.symbols), infos)
    return tuple(_input(prepared, number, f"in_{n}", needs[n]) for n, number in enumerate(part.inputs))


def _input(prepared: Prepared, number: int, name: str, needed: Interval) -> Input:
    value = prepared.propagated.values[number]
    hints = drawn_from(value, prepared.known[number], needed)
    role = "input"
    if number < prepared.inputs:
        given = prepared.traced.inputs[number]
        role = given.role
        if hints["mean"] is not None:  # nothing bounds it: the model's own distribution
            hints |= {"mean": given.mean or 0.0, "std": 1.0 if given.std is None else given.std}
    return Input(name, role, value.dtype, value.shape, value.stride, None, **hints)


def _is_enough(prepared: Prepared, category: str, start: int, end: int) -> bool:
    """Whether a moved range still is one of its category."""
    if category == "fusible":
        return end - start <= MAX_OPS and _needing(prepared, start, end) > 1
    if category == "typical":
        computing = any(prepared.computes(op) for op in range(start, end))
        return MIN_TYPICAL_OPS <= end - start <= MAX_OPS and computing
    return end > start

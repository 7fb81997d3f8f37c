"""Backward graphs (`extraction.cutting.gradients`) as subgraphs of their own, by their categories' rules."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from extraction.analysis.prepared import Prepared, prepare
from extraction.analysis.propagate import Invalid, propagate
from extraction.cutting.cut import cut_range, fusible_ranges
from extraction.cutting.float_dtypes import exchanged, exchanged_graph, exchanged_records, float_dtype
from extraction.cutting.gradients import TANGENT_STD, BackwardError, Split, split
from extraction.cutting.plateaus import MAX_OPS
from extraction.kernels.lowering import LoweringError, kernels_by_op
from storage.graph.effects import argument, base_name
from storage.graph.record import Graph, Op, cut, refs
from storage.records import Input, TracedGraph, Variant


@dataclass(frozen=True)
class _Found:
    """The backward subgraphs of a forward subgraph on one dtype, and by cause what it has none for.

    `whole` is the backward graph that they are parts of, with its inputs; None where there is none.
    """

    forward: Variant
    dtype: str | None
    subgraphs: tuple[Variant, ...]
    causes: Counter[str]
    whole: tuple[Graph, tuple[Input, ...]] | None


def backward_all(variants: Iterable[Variant], dropped: Counter[str]) -> Iterator[Variant]:
    """Yields the backward subgraphs of forward subgraphs, as `backward` gives them.

    Tracing gradients is most of the cost of varying. So neighbours that are one subgraph on several float dtypes are
    traced once: their backward graphs differ in the dtype alone. Propagation checks the others, since some ops have a
    backward for float32 alone.
    """
    last: _Found | None = None
    for variant in variants:
        found = _on_another_dtype(last, variant) if last is not None else None
        if found is None:
            last = found = _backward(variant)
        dropped.update(found.causes)
        yield from found.subgraphs


def backward(variant: Variant, dropped: Counter[str]) -> Iterator[Variant]:
    """Yields the backward subgraphs of a concrete forward subgraph, in its category; `dropped` counts by cause.

    sole_op: the whole graph, if one op of it computes. typical: the whole graph, in as few parts of equal length as the
    limit of 64 ops allows; what repeats in the corpus, repeats in the same parts. fusible: its kernel-count plateaus.
    Sources, occurrences and symbols are those of the forward subgraph.
    """
    found = _backward(variant)
    dropped.update(found.causes)
    yield from found.subgraphs


def _on_another_dtype(known: _Found, variant: Variant) -> _Found | None:
    """What is found for a subgraph that is the known one on another float dtype; None if it is another subgraph."""
    old, new = known.dtype, float_dtype(variant)
    if old is None or new is None or exchanged(known.forward, old, new) != variant:
        return None
    whole = None
    if known.whole is not None:
        graph, inputs = known.whole
        whole = exchanged_graph(graph, old, new), exchanged_records(inputs, old, new)
        propagated = propagate(*whole)
        if isinstance(propagated, Invalid):
            return _Found(variant, new, (), Counter({f"backward: {_refused(propagated)}": 1}), None)
    subgraphs = tuple(exchanged(each, old, new) for each in known.subgraphs)
    return _Found(variant, new, subgraphs, known.causes, whole)


def _backward(variant: Variant) -> _Found:
    causes: Counter[str] = Counter()
    dtype, whole, subgraphs = float_dtype(variant), None, []
    try:
        parts = split(variant)
        whole = parts.backward, parts.inputs
        prepared = _prepared(variant, parts)
        ranges = _ranges(prepared, variant.category)
    except BackwardError as error:
        return _Found(variant, dtype, (), Counter({f"backward: {error}": 1}), whole)
    for start, end in ranges:
        found = cut_range(prepared, variant.category, start, end)
        if isinstance(found, Variant):
            inputs = _with_small_gradients(found, prepared, parts)
            changes = {"sources": variant.sources, "occurrences": variant.occurrences, "symbols": variant.symbols}
            subgraphs.append(found.with_changes(direction="backward", inputs=inputs, **changes))
        else:
            causes[f"backward: {found}"] += 1
    return _Found(variant, dtype, tuple(subgraphs), causes, whole)


def _refused(invalid: Invalid) -> str:
    return f"does not propagate: {invalid.cause}"


def _with_small_gradients(found: Variant, prepared: Prepared, parts: Split) -> tuple[Input, ...]:
    """The inputs of a part with gradients from other parts drawn as tangents are."""
    graph, (source,) = parts.backward, found.sources
    gradients = set(range(len(parts.saved), graph.inputs))
    for number, op in enumerate(graph.ops[: source.start], graph.inputs):
        if any(ref.index in gradients for ref in refs((op.args, op.kwargs))):
            gradients.add(number)
    numbers = cut(graph, source.start, source.end, prepared.last).inputs
    return tuple(
        replace(each, std=TANGENT_STD) if number in gradients and each.std is not None else each
        for number, each in zip(numbers, found.inputs, strict=True)
    )


def _prepared(variant: Variant, parts: Split) -> Prepared:
    """The backward graph with what cutting needs to know; its kernels only where its category asks for them."""
    prepared = prepare(TracedGraph("backward", 0, parts.backward, parts.inputs), parts.propagated)
    if isinstance(prepared, Invalid):
        raise BackwardError(_refused(prepared))
    if variant.category != "fusible":
        return prepared
    if not may_share(prepared):
        raise BackwardError(_NOTHING_SHARED)
    try:
        needed = kernels_by_op(parts.backward, parts.inputs, propagated=parts.propagated)
    except LoweringError as error:
        raise BackwardError("TorchInductor cannot lower it") from error
    kernels = tuple(tuple(sorted(numbers)) for numbers in needed)
    return replace(prepared, traced=replace(prepared.traced, kernels=kernels))


_NOTHING_SHARED = "no two ops share a kernel"


def may_share(prepared: Prepared) -> bool:
    """Whether two ops may share a kernel, as their wiring tells. If not, the graph need not be lowered: there is no
    plateau, whatever the kernels are."""
    computing = [op for op in range(len(prepared.graph.ops)) if prepared.computes(op)]
    return any(
        prepared.is_connected(computing[0], op) for op in computing[1:] if not _is_library_call(prepared.graph.ops[op])
    )


def _is_library_call(op: Op) -> bool:
    """Whether the op certainly is a library call. A gradient of the bias alone would be none."""
    return base_name(op) == "convolution_backward" and any(argument(op, 10, "output_mask")[:2])


def _ranges(prepared: Prepared, category: str) -> list[tuple[int, int]]:
    count = len(prepared.traced.graph.ops)
    if category == "fusible":
        ranges = list(fusible_ranges(prepared))
        if not ranges:
            raise BackwardError(_NOTHING_SHARED)
        return ranges
    computing = sum(prepared.computes(op) for op in range(count))
    if not computing:
        raise BackwardError("views alone")
    if category == "sole_op" and computing > 1:
        raise BackwardError("more than one op for a sole_op")
    parts = -(-count // MAX_OPS) if category == "typical" else 1
    borders = [count * part // parts for part in range(parts + 1)]
    return list(pairwise(borders))

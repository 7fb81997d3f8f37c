"""Backward graphs (`extraction.cutting.gradients`) as subgraphs of their own, by their categories' rules."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from extraction.analysis.prepared import Prepared, prepare
from extraction.analysis.propagate import Invalid
from extraction.cutting.cut import cut_range, fusible_ranges
from extraction.cutting.gradients import TANGENT_STD, BackwardError, Split, split
from extraction.cutting.halves import exchanged, holds_halves
from extraction.cutting.plateaus import MAX_OPS
from extraction.kernels.lowering import LoweringError, kernels_by_op
from storage.graph.record import cut, refs
from storage.records import Input, TracedGraph, Variant


def backward_all(variants: Iterable[Variant], dropped: Counter[str]) -> Iterator[Variant]:
    """Yields the backward subgraphs of forward subgraphs, each as `backward` gives them.

    Two neighbours that are one subgraph on the two half precisions have one backward graph on them (both are two bytes
    wide, and widen to float32 alike), so it is traced once: tracing gradients is most of what varying costs.
    """
    last, found, causes = None, [], Counter()
    for variant in variants:
        if last is not None and holds_halves(variant) and exchanged(last) == variant:
            found = [exchanged(each) for each in found]
        else:
            causes = Counter()
            found = list(backward(variant, causes))
        last = variant
        dropped.update(causes)
        yield from found


def backward(variant: Variant, dropped: Counter[str]) -> Iterator[Variant]:
    """Yields the backward subgraphs of a concrete forward subgraph, in its category; `dropped` counts by cause.

    sole_op: the whole graph, if one op of it computes. typical: the whole graph, in as few parts of equal length as the
    limit of 64 ops allows; what repeats in the corpus, repeats in the same parts. fusible: its kernel-count plateaus.
    Sources, occurrences and symbols are those of the forward subgraph.
    """
    try:
        parts = split(variant)
        prepared = _prepared(variant, parts)
        ranges = _ranges(prepared, variant.category)
    except BackwardError as error:
        dropped[f"backward: {error}"] += 1
        return
    for start, end in ranges:
        found = cut_range(prepared, variant.category, start, end)
        if isinstance(found, Variant):
            inputs = _with_small_gradients(found, prepared, parts)
            yield found.with_changes(
                direction="backward",
                inputs=inputs,
                sources=variant.sources,
                occurrences=variant.occurrences,
                symbols=variant.symbols,
            )
        else:
            dropped[f"backward: {found}"] += 1


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
    kernels, refusal = None, None
    if variant.category == "fusible":
        try:
            needed = kernels_by_op(parts.backward, parts.inputs)
        except LoweringError as error:
            refusal = error
        else:
            kernels = tuple(tuple(sorted(numbers)) for numbers in needed)
    prepared = prepare(TracedGraph("backward", 0, parts.backward, parts.inputs, kernels))
    if isinstance(prepared, Invalid):
        raise BackwardError(f"does not propagate: {prepared.cause}")
    if refusal is not None:
        raise BackwardError("TorchInductor cannot lower it") from refusal
    return prepared


def _ranges(prepared: Prepared, category: str) -> list[tuple[int, int]]:
    count = len(prepared.traced.graph.ops)
    if category == "fusible":
        ranges = list(fusible_ranges(prepared))
        if not ranges:
            raise BackwardError("no two ops share a kernel")
        return ranges
    computing = sum(prepared.computes(op) for op in range(count))
    if not computing:
        raise BackwardError("views alone")
    if category == "sole_op" and computing > 1:
        raise BackwardError("more than one op for a sole_op")
    parts = -(-count // MAX_OPS) if category == "typical" else 1
    borders = [count * part // parts for part in range(parts + 1)]
    return list(pairwise(borders))

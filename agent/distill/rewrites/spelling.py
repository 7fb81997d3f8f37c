"""One spelling of calls that a graph may spell in two ways, and a pattern of either matches."""

from collections.abc import Iterable
from dataclasses import replace

from storage.graph.as_json import to_json
from storage.graph.record import Graph, Op
from storage.records import Variant


def by_graph(variants: Iterable[Variant]) -> dict[str, list[Variant]]:
    """The variants of each graph, which is given as JSON, all in one spelling of it."""
    groups: dict[str, list[Variant]] = {}
    for variant in variants:
        graph = in_one_spelling(variant.graph)
        groups.setdefault(to_json(graph), []).append(replace(variant, graph=graph))
    return groups


def in_one_spelling(graph: Graph) -> Graph:
    """The graph with `x.to(torch.float32)` in place of `x.to(dtype=torch.float32)`.

    A record keeps this keyword, since `to` has several signatures. Two patterns that differ in nothing else would both
    match where either is meant to.
    """
    if any(map(_is_cast_by_keyword, graph.ops)):
        return replace(graph, ops=tuple(map(_positional, graph.ops)))
    return graph


def _is_cast_by_keyword(op: Op) -> bool:
    return op.kind == "method" and op.target == "to" and len(op.args) == 1 and tuple(op.kwargs) == ("dtype",)


def _positional(op: Op) -> Op:
    return replace(op, args=(*op.args, op.kwargs["dtype"]), kwargs={}) if _is_cast_by_keyword(op) else op

"""The graphs of a sample's variants: which variants have one, in which floating dtypes, and what could be rewritten."""

from collections.abc import Iterable
from dataclasses import replace

from agent.distill.rewrites.channels_last import in_channels_last
from agent.distill.rewrites.split_biases import linears_within, split_biases
from storage.graph.as_json import to_json
from storage.graph.record import Graph, Op
from storage.records import Variant

FloatDtypes = frozenset[str]
"""The floating dtypes in which a sample has variants of one graph. A pattern is matched against the graph, so it cannot
tell these variants apart. Variants in other dtypes may have another graph, with another dtype in a conversion, say."""


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


def has_split_linears(variants: Iterable[Variant]) -> bool:
    """Whether a graph has linears in single precision whose biases eager adds within the products, and kernels could
    add."""
    groups = by_graph(variants).values()
    return any(split_biases(group[0].graph, within=linears_within(group)).within for group in groups)


def has_channels_last(variants: Iterable[Variant]) -> bool:
    """Whether a graph has convolutions that could be in channels-last memory."""
    return any(in_channels_last(group) is not None for group in by_graph(variants).values())


def float_dtypes(variants: Iterable[Variant]) -> dict[str, FloatDtypes]:
    """The floating dtypes of the variants of each graph, whichever way they spell it; graphs are given as JSON."""
    variants = list(variants)
    groups = {graph: float_dtypes_of(group) for graph, group in by_graph(variants).items()}
    return {to_json(v.graph): groups[to_json(in_one_spelling(v.graph))] for v in variants}


def float_dtypes_of(variants: Iterable[Variant]) -> FloatDtypes:
    """The floating dtypes of these variants' inputs."""
    return frozenset(i.dtype for variant in variants for i in variant.inputs if "float" in i.dtype)

"""A graph whose tuples are taken apart at once, in order: what is the same but for that has one pattern.

A backward graph reads the three gradients of each batch norm in an order that what comes behind decides. A pattern that
names them in one order matches all of them, so the others must not have a pattern of their own.
"""

from collections.abc import Sequence
from dataclasses import replace

from agent.distill.eager.op_effects import OpEffects, OpEffectsError, find_effects
from storage.graph.record import Graph, Op, Ref, map_refs
from storage.records import Variant


def in_part_order(variants: Sequence[Variant]) -> list[Variant]:
    """Variants that share a graph, with that graph in the order of `with_parts_in_order`."""
    first = variants[0]
    try:
        graph = with_parts_in_order(first.graph, find_effects(first.graph, first.inputs))
    except OpEffectsError:  # nothing is known of its values, and nothing will be written for it
        return list(variants)
    return [replace(variant, graph=graph) for variant in variants]


def with_parts_in_order(graph: Graph, known: OpEffects) -> Graph:
    """The graph with the ops that take a tuple apart right behind the one that makes it, by their indices.

    A graph that changes a tensor in place stays as it is: what is read before that and what after decides on a match.
    """
    parts: dict[int, list[int]] = {}
    if any(known.writes):
        return graph
    for number, op in enumerate(graph.ops):
        if _takes_part(graph, known, op):
            parts.setdefault(op.args[0].index - graph.inputs, []).append(number)
    if not parts:
        return graph
    order: list[int] = []

    def add(number: int) -> None:
        order.append(number)
        for part in sorted(parts.get(number, ()), key=lambda part: graph.ops[part].args[1]):
            add(part)

    moved = {part for of_one in parts.values() for part in of_one}
    for number in range(len(graph.ops)):
        if number not in moved:
            add(number)
    new = {graph.inputs + old: Ref(graph.inputs + place) for place, old in enumerate(order)}

    def renumbered(ref: Ref) -> Ref:
        return new.get(ref.index, ref)

    ops = (graph.ops[number] for number in order)
    kept = (replace(o, args=map_refs(o.args, renumbered), kwargs=map_refs(o.kwargs, renumbered)) for o in ops)
    return replace(graph, ops=tuple(kept), output=map_refs(graph.output, renumbered))


def _takes_part(graph: Graph, known: OpEffects, op: Op) -> bool:
    if op.target != "operator.getitem" or not isinstance(op.args[0], Ref) or type(op.args[1]) is not int:
        return False
    taken = op.args[0].index
    return taken >= graph.inputs and isinstance(known.values[taken], tuple)

"""The canonical form of a graph: one record for all orders in which the same ops, wired the same way, can be listed.

Ops are numbered depth first from the outputs, arguments in order, which is exact because arguments and outputs are
ordered. Changes to memory are wired too: an op comes after the changes that it sees and before those that it must not
see (`dedup.memory`). Inputs are numbered as they are met. Ops that neither lead to an output nor change an input are
dropped, and so are inputs that nothing reads: they are no part of what the subgraph computes.
"""

import hashlib
import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from dedup.memory import Order, order
from dedup.signatures import normalised
from storage.graph import Graph, Op, Ref, map_refs, refs
from storage.graph_json import to_json


@dataclass(frozen=True)
class Canonical:
    """`inputs[n]` and `ops[n]` are the numbers, in the original graph, of input n and op n of `graph`."""

    graph: Graph
    inputs: tuple[int, ...]
    ops: tuple[int, ...]


def canonical(graph: Graph) -> Canonical:
    """The canonical form, in time linear in the graph (and logarithmic in it where memory is changed)."""
    graph = Graph(graph.inputs, tuple(normalised(op) for op in graph.ops), graph.output)
    constraints = order(graph)
    inputs, ops = _traverse(graph, constraints)
    ops = _in_running_order(graph, constraints, ops)
    numbers = {old: Ref(new) for new, old in enumerate([*inputs, *(graph.inputs + op for op in ops)])}

    def renumber(ref: Ref) -> Ref:
        return numbers[ref.index]

    chosen = (graph.ops[op] for op in ops)
    renumbered = tuple(Op(o.kind, o.target, map_refs(o.args, renumber), map_refs(o.kwargs, renumber)) for o in chosen)
    return Canonical(Graph(len(inputs), renumbered, map_refs(graph.output, renumber)), tuple(inputs), tuple(ops))


def _traverse(graph: Graph, constraints: Order) -> tuple[list[int], list[int]]:
    """Inputs in the order in which a depth-first walk from the outputs meets them, ops in the order in which it leaves
    them."""
    inputs: dict[int, None] = {}
    ops: dict[int, None] = {}
    entered: set[int] = set()

    def needs(op: int) -> list[int]:
        record = graph.ops[op]
        values = [r.index for r in refs((record.args, record.kwargs))]
        return [*values, *(graph.inputs + earlier for earlier in constraints.after[op])]

    def walk(value: int) -> None:
        stack = [(value, None)]
        while stack:
            value, remaining = stack.pop()
            if value < graph.inputs:
                inputs.setdefault(value)
                continue
            op = value - graph.inputs
            if remaining is None:
                if op in entered:
                    continue
                entered.add(op)
                remaining = iter(needs(op))
            following = next(remaining, None)
            if following is None:
                ops.setdefault(op)
            else:
                stack += [(value, remaining), (following, None)]

    for ref in refs(graph.output):
        walk(ref.index)
        for op in constraints.at_end[ref.index]:
            walk(graph.inputs + op)
    for number in list(inputs):
        for op in constraints.final[number]:
            walk(graph.inputs + op)
    hidden = {op for changes in constraints.final for op in changes} - entered
    for op in sorted(hidden, key=_digests(graph, constraints, inputs).__getitem__) if len(hidden) > 1 else hidden:
        walk(graph.inputs + op)
    for op in constraints.contexts:
        walk(graph.inputs + op)
    return list(inputs), list(ops)


def _digests(graph: Graph, constraints: Order, inputs: Mapping[int, None]) -> list[str]:
    """For each op a hash of everything that leads to it (Merkle 1987). It orders changes of inputs that no output leads
    to; among equal ones the order makes no difference to what is computed."""
    numbers = {value: number for number, value in enumerate(inputs)}
    digests = [f"input {numbers.get(value, '')}" for value in range(graph.inputs)]
    for op, seen in zip(graph.ops, constraints.after, strict=True):
        args, kwargs = (map_refs(part, lambda ref: digests[ref.index]) for part in (op.args, op.kwargs))
        changes = tuple(digests[graph.inputs + earlier] for earlier in seen)
        text = to_json(Graph(0, (Op(op.kind, op.target, args, kwargs),), changes))
        digests.append(hashlib.sha256(text.encode()).hexdigest())
    return digests[graph.inputs :]


def _in_running_order(graph: Graph, constraints: Order, ops: list[int]) -> list[int]:
    """The ops with each change after the last read of what it changes; otherwise as they are (topological order with
    the smallest number first: Kahn 1962)."""
    rank = {op: number for number, op in enumerate(ops)}
    if not any(constraints.unread[op] for op in ops):
        return ops
    waiting: dict[int, int] = {}
    followers: dict[int, list[int]] = {op: [] for op in ops}
    for op in ops:
        record = graph.ops[op]
        values = {r.index - graph.inputs for r in refs((record.args, record.kwargs)) if r.index >= graph.inputs}
        earlier = values | set(constraints.after[op]) | (set(constraints.unread[op]) & rank.keys())
        waiting[op] = len(earlier)
        for other in earlier:
            followers[other].append(op)
    ready = [rank[op] for op in ops if not waiting[op]]
    heapq.heapify(ready)
    result = []
    while ready:
        op = ops[heapq.heappop(ready)]
        result.append(op)
        for follower in followers[op]:
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, rank[follower])
    return result

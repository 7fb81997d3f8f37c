"""The canonical form of a graph: one record for all orders in which the same ops, wired the same way, can be listed.

A walk from the outputs numbers the ops: depth first, arguments in order. Outputs and arguments have an order, so the
walk is the same however the ops were listed. Changes to memory count as wiring too: an op comes after the changes that
it sees and before those that it must not see (`dedup.memory_order`). Inputs are numbered as the walk meets them. An op
that neither leads to an output nor changes an input is dropped, and so is an input that nothing reads.
"""

import hashlib
import heapq
from collections.abc import Mapping
from dataclasses import dataclass

from dedup.memory_order import MemoryOrder, order, reads
from dedup.signatures import normalised
from storage.graph.as_json import to_json
from storage.graph.record import Graph, Op, Ref, Value, map_refs, refs


@dataclass(frozen=True)
class Canonical:
    """`inputs[n]` and `ops[n]` are the numbers, in the original graph, of input n and op n of `graph`."""

    graph: Graph
    inputs: tuple[int, ...]
    ops: tuple[int, ...]


def canonical(graph: Graph) -> Canonical:
    """The canonical form, in time linear in the graph (and logarithmic in it where memory is changed)."""
    ops = tuple(normalised(op) for op in graph.ops) if any(op.kwargs for op in graph.ops) else graph.ops
    graph = Graph(graph.inputs, ops, graph.output)
    read = reads(graph)
    constraints = order(graph, read)
    if constraints is None:
        inputs, chosen = _traverse(graph, read)
    else:
        inputs, chosen = _traverse_in_order(graph, read, constraints)
        chosen = _in_running_order(graph, read, constraints, chosen)
    if len(inputs) == graph.inputs and all(n == i for n, i in enumerate(inputs)) and chosen == list(range(len(ops))):
        return Canonical(graph, tuple(inputs), tuple(chosen))
    numbers = {old: Ref(new) for new, old in enumerate([*inputs, *(graph.inputs + op for op in chosen)])}
    renumbered = tuple(_renumbered(ops[n], numbers) for n in chosen)
    return Canonical(Graph(len(inputs), renumbered, _with_numbers(graph.output, numbers)), tuple(inputs), tuple(chosen))


def _renumbered(op: Op, numbers: dict[int, Ref]) -> Op:
    kwargs = _with_numbers(op.kwargs, numbers) if op.kwargs else op.kwargs
    return Op(op.kind, op.target, _with_numbers(op.args, numbers), kwargs)


def _with_numbers(value: Value, numbers: dict[int, Ref]) -> Value:
    """`storage.graph.record.map_refs` of a lookup."""
    kind = type(value)
    if kind is Ref:
        return numbers[value.index]
    if kind is tuple:
        return tuple([numbers[v.index] if type(v) is Ref else _with_numbers(v, numbers) for v in value])
    if kind is list or kind is dict or kind is slice:
        return map_refs(value, lambda ref: numbers[ref.index])
    return value


def _traverse(graph: Graph, read: list[list[int]]) -> tuple[list[int], list[int]]:
    """Inputs and ops in canonical order: inputs as a depth-first walk from the outputs meets them, ops as it leaves
    them."""
    count = graph.inputs
    met: dict[int, None] = {}
    done: dict[int, None] = {}
    position = [0] * len(graph.ops)
    for root in refs(graph.output):
        if root.index < count:
            met.setdefault(root.index)
            continue
        stack = [root.index - count]
        while stack:
            op = stack[-1]
            if op in done:
                stack.pop()
                continue
            needed = read[op]
            at = position[op]
            while at < len(needed):
                value = needed[at]
                at += 1
                if value < count:
                    met.setdefault(value)
                elif value - count not in done:
                    stack.append(value - count)
                    break
            else:
                done[op] = None
                stack.pop()
            position[op] = at
    return list(met), list(done)


def _traverse_in_order(graph: Graph, read: list[list[int]], constraints: MemoryOrder) -> tuple[list[int], list[int]]:
    """As `_traverse`, where changes to memory are wired too: an op also needs the changes that it sees."""
    inputs: dict[int, None] = {}
    ops: dict[int, None] = {}
    entered: set[int] = set()

    def needs(op: int) -> list[int]:
        return [*read[op], *(graph.inputs + earlier for earlier in constraints.after[op])]

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


def _digests(graph: Graph, constraints: MemoryOrder, inputs: Mapping[int, None]) -> list[str]:
    """For each op a hash of everything that leads to it (Merkle 1987). Changes of inputs that no output leads to are
    sorted by it. Equal hashes are equal computations, so their order does not matter."""
    numbers = {value: number for number, value in enumerate(inputs)}
    digests = [f"input {numbers.get(value, '')}" for value in range(graph.inputs)]
    for op, seen in zip(graph.ops, constraints.after, strict=True):
        args, kwargs = (map_refs(part, lambda ref: digests[ref.index]) for part in (op.args, op.kwargs))
        changes = tuple(digests[graph.inputs + earlier] for earlier in seen)
        text = to_json(Graph(0, (Op(op.kind, op.target, args, kwargs),), changes))
        digests.append(hashlib.sha256(text.encode()).hexdigest())
    return digests[graph.inputs :]


def _in_running_order(graph: Graph, read: list[list[int]], constraints: MemoryOrder, ops: list[int]) -> list[int]:
    """The ops in an order that can run: each change comes after the last read of what it changes. Otherwise the order
    stays (topological order with the smallest number first: Kahn 1962)."""
    rank = {op: number for number, op in enumerate(ops)}
    if not any(constraints.unread[op] for op in ops):
        return ops
    waiting: dict[int, int] = {}
    followers: dict[int, list[int]] = {op: [] for op in ops}
    for op in ops:
        values = {value - graph.inputs for value in read[op] if value >= graph.inputs}
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

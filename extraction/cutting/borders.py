"""Borders of subgraphs: only tensors cross them, and no memory is changed that others see."""

from collections.abc import Sequence
from itertools import pairwise

from extraction.analysis.prepared import Prepared
from extraction.analysis.values import OtherValue
from storage.graph.effects import base_name
from storage.graph.record import refs


def within_tensors(prepared: Prepared, start: int, end: int) -> tuple[int, int] | None:
    """The range, changed so that only tensors enter and leave it; None if nothing is left.

    It grows over the `getitem`s that directly follow the op that makes a tuple. If that does not do, it shrinks to the
    longest part between the ops at fault.
    """
    graph, values = prepared.graph, prepared.propagated.values
    while start < end:
        first = prepared.inputs + start
        faults = set()
        for op in range(start, end):
            read = {ref.index for ref in refs((graph.ops[op].args, graph.ops[op].kwargs))}
            if any(index < first and isinstance(values[index], OtherValue) for index in read):
                faults.add(op)
        escaping = [
            op
            for op in range(start, end)
            if prepared.last[prepared.inputs + op] >= end and isinstance(values[prepared.inputs + op], OtherValue)
        ]
        reach = max((prepared.last[prepared.inputs + op] for op in escaping), default=end - 1) + 1
        if not faults and not escaping:
            return start, end
        if not faults and _only_items(prepared, end, reach, escaping):
            end = reach
            continue
        faults.update(escaping)
        cuts_at = [start - 1, *sorted(faults), end]
        parts = [(left + 1, right) for left, right in pairwise(cuts_at)]
        start, end = max(parts, key=lambda part: part[1] - part[0])
    return None


def _only_items(prepared: Prepared, end: int, reach: int, escaping: Sequence[int]) -> bool:
    graph = prepared.graph
    makers = {prepared.inputs + op for op in escaping}
    return reach <= len(graph.ops) and all(
        base_name(op) == "getitem" and next(refs(op.args)).index in makers for op in graph.ops[end:reach]
    )


def memory_problem(prepared: Prepared, start: int, end: int) -> str | None:
    """Why the range must not change the memory that it changes; None if it may."""
    changed = frozenset().union(*prepared.propagated.mutated[start:end])
    if not changed:
        return None
    first = prepared.inputs + start
    graph = prepared.graph
    read = {r.index for op in graph.ops[start:end] for r in refs((op.args, op.kwargs)) if r.index < first}
    for storage in changed:
        outside = [number for number in prepared.made[storage] if number < first]
        if outside and outside[0] < prepared.inputs:
            return "changes a parameter, a buffer or an input of the model"
        if any(prepared.last[number] >= end for number in outside):
            return "changes a value that is read outside later"
        if len(read.intersection(outside)) > 1:
            return "changes a value that it reads under two names"
    return None

"""Graphs that fail on all inputs, because indices that they make themselves lie outside of what they index.

For example, a sequence may be longer than the model's table of positions. This happens at sizes that the model was not
made for. Fake tensors have no values, so propagation does not find it.
"""

from collections.abc import Sequence

from extraction.analysis.intervals import ANY, intervals
from extraction.analysis.propagate import Propagated
from extraction.analysis.value_ranges import needs_of
from storage.graph.effects import base_name
from storage.graph.record import Graph, Op, Ref
from storage.records import Input

_SAME_ELEMENTS = frozenset(
    "expand expand_as unsqueeze squeeze view reshape flatten to long int contiguous permute transpose clone detach"
    " repeat _to_copy alias".split()
)
_SHIFTS = frozenset("add iadd sub isub".split())


def overruns(graph: Graph, inputs: Sequence[Input], propagated: Propagated) -> bool:
    """Whether numbers of an `arange`, perhaps with constants added, are used as indices beyond the end."""
    if not any(_is_plain_arange(op) for op in graph.ops):
        return False
    known = intervals(graph, inputs, propagated)
    exact: set[int] = set()  # values whose largest element is the end of their interval
    for number, op in enumerate(graph.ops, graph.inputs):
        for value, need in needs_of(op, ANY, propagated.values):
            if isinstance(value, Ref) and value.index in exact and known[value.index].high > need.high:
                return True
        if known[number] != ANY and (_is_plain_arange(op) or _keeps(op, exact)):
            exact.add(number)
    return False


def _is_plain_arange(op: Op) -> bool:
    return base_name(op) == "arange" and len(op.args) <= 2 and "step" not in op.kwargs


def _keeps(op: Op, exact: set[int]) -> bool:
    """Whether the result has the elements of an exact value, or these and a constant."""
    name, first = base_name(op), op.args[0] if op.args else None
    if not isinstance(first, Ref) or first.index not in exact:
        return False
    shifts = name in _SHIFTS and len(op.args) == 2 and isinstance(op.args[1], int) and not op.kwargs
    return shifts or name in _SAME_ELEMENTS

"""A traced graph with what cutting it needs to know: its values, who changes and reads memory, what may not be cut.

All of it is told at the sizes of the trace; graphs whose constants follow named sizes are put at them.
"""

from dataclasses import dataclass

from extraction.analysis.intervals import intervals
from extraction.analysis.propagate import Invalid, Propagated, propagate
from extraction.analysis.value_ranges import Interval
from extraction.analysis.values import TensorValue
from storage.graph.effects import argument, base_name, is_context, is_random
from storage.graph.record import Graph, GraphError, Op, last_uses, op_name, refs
from storage.records import TracedGraph


@dataclass(frozen=True)
class Prepared:
    """`graph` is the traced graph with the numbers of its trace. `barriers[n]` says why op n may be in no subgraph, or
    is None. `last[v]` is the last op that reads value v. `made[s]` are the values in storage s, in order. `reads[n]`
    are the storages whose elements op n reads. `known[v]` is the interval in which value v lies.
    """

    traced: TracedGraph
    graph: Graph
    propagated: Propagated
    last: list[int]
    barriers: list[str | None]
    made: dict[int, list[int]]
    reads: list[frozenset[int]]
    known: list[Interval]

    @property
    def inputs(self) -> int:
        return self.graph.inputs

    def computes(self, op: int) -> bool:
        """Whether the op makes or changes a tensor; views, sizes and identities do not."""
        number = self.inputs + op
        value = self.propagated.values[number]
        fresh = any(self.made[storage][0] == number for storage in value.storages)
        return fresh or bool(self.propagated.mutated[op])

    def is_dead(self, op: int) -> bool:
        """Whether nothing reads what the op makes, and it changes nothing: a compiler leaves it out."""
        return self.last[self.inputs + op] < 0 and not self.propagated.mutated[op]

    def is_connected(self, start: int, op: int) -> bool:
        """Whether the op reads what ops `[start, op)` compute, through views or not.

        An op is connected, too, if it has as many elements as one of these ops and reads the same memory.
        """
        first = self.inputs + start
        if any(self.made[storage][0] >= first for storage in self.reads[op]):
            return True
        read = self._parts(op)
        return any(
            self.elements(other) == self.elements(op) and not read.isdisjoint(self._parts(other))
            for other in range(start, op)
            if self.computes(other)
        )

    def _parts(self, op: int) -> frozenset[tuple[int, int | None]]:
        """What the op reads: storages as a whole, or with the number of the value that is a part of one."""
        parts = set()
        for ref in refs((self.graph.ops[op].args, self.graph.ops[op].kwargs)):
            value = self.propagated.values[ref.index]
            if isinstance(value, TensorValue) and value.storage in self.reads[op]:
                root = self.propagated.values[self.made[value.storage][0]]
                whole = isinstance(root, TensorValue) and root.numel == value.numel
                parts.add((value.storage, None if whole else ref.index))
        return frozenset(parts)

    def elements(self, op: int) -> int:
        """Number of elements of an op's result, 0 if it is no tensor."""
        value = self.propagated.values[self.inputs + op]
        return value.numel if isinstance(value, TensorValue) else 0

    def kernels(self, op: int) -> frozenset[int]:
        """The kernels that the op needs. A view needs none: its reader's kernel does its indexing."""
        needed = self.traced.kernels
        return frozenset(needed[op]) if needed is not None and self.computes(op) else frozenset()


def prepare(traced: TracedGraph, propagated: Propagated | Invalid | None = None) -> Prepared | Invalid:
    """What cutting needs to know of a traced graph; `Invalid` if it does not propagate on its own inputs.

    `propagated` is what `propagate` says of the graph at its own sizes, where the caller has it.
    """
    try:
        graph = traced.concrete
    except GraphError as error:
        return Invalid("graph", 0, str(error))
    propagated = propagated or propagate(graph, traced.inputs)
    if isinstance(propagated, Invalid):
        return propagated
    made: dict[int, list[int]] = {}
    for number, value in enumerate(propagated.values):
        for storage in value.storages:
            made.setdefault(storage, []).append(number)
    reads = [_read(op, propagated) for op in graph.ops]
    known = intervals(graph, traced.inputs, propagated)
    return Prepared(traced, graph, propagated, last_uses(graph), barriers(graph), made, reads, known)


def _read(op: Op, propagated: Propagated) -> frozenset[int]:
    """The storages whose elements an op reads; `zeros_like`, `new_full` and the like only want a shape."""
    name = base_name(op)
    if name.endswith("_like") or name.startswith("new_"):
        return frozenset()
    return frozenset().union(*(propagated.values[ref.index].storages for ref in refs((op.args, op.kwargs))))


def barriers(graph: Graph) -> list[str | None]:
    """For each op why it may be in no subgraph, or None: contexts, random numbers, and what stands under autocast."""
    found: list[str | None] = []
    open_regions: dict[int, bool] = {}
    for number, op in enumerate(graph.ops):
        if is_context(op):
            found.append("context")
            if op.target.endswith("._enter_autocast"):
                open_regions[graph.inputs + number] = argument(op, 2, "enabled", True) is not False
            for ref in refs(op.args):
                open_regions.pop(ref.index, None)
        elif is_random(op):
            found.append("randomness")
        else:
            found.append("under autocast" if any(open_regions.values()) else None)
    return found


def tokens(traced: TracedGraph) -> list[str | None]:
    """The text of a graph for `extraction.cutting.typical`: op names, None for what may be in no subgraph."""
    found = barriers(traced.graph)
    return [None if barrier else op_name(op) for op, barrier in zip(traced.graph.ops, found, strict=True)]

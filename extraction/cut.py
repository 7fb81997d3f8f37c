"""Traced graphs → subgraphs of the three categories, each a `Variant` on the shapes that the model has there.

A subgraph must compute alone what it computes in its model, so these are not cut, and are counted by cause: ops that
draw random numbers, enter or leave a context, or run under autocast; ranges across whose border something other than a
tensor goes; and ranges that change memory which others see: the model's parameters, buffers and inputs, or a value
made before the range and read after it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from extraction.propagate import Invalid, Propagated, propagate
from extraction.ranges import Interval, drawn_from, intervals, required
from extraction.typical import repeats
from extraction.values import OtherValue, TensorValue
from storage.effects import argument, base_name, is_context, is_random
from storage.graph import cut, last_uses, op_name, refs
from storage.records import Input, Output, Source, TracedGraph, Variant

MAX_OPS = 64
MIN_TYPICAL_OPS = 4


@dataclass(frozen=True)
class CutResult:
    """`dropped` counts by "category: cause" what was not cut."""

    variants: tuple[Variant, ...]
    dropped: Counter[str]


@dataclass(frozen=True)
class Prepared:
    """A traced graph with what cutting it needs to know.

    `barriers[n]` says why op n may be in no subgraph, or is None. `last[v]` is the last op that reads value v;
    `made[s]` are the values in storage s, in order; `known[v]` is the interval in which value v lies.
    """

    traced: TracedGraph
    propagated: Propagated
    last: list[int]
    barriers: list[str | None]
    made: dict[int, list[int]]
    known: list[Interval]

    @property
    def inputs(self) -> int:
        return self.traced.graph.inputs

    def computes(self, op: int) -> bool:
        """Whether the op makes or changes a tensor; views, sizes and identities do not."""
        number = self.inputs + op
        value = self.propagated.values[number]
        fresh = any(self.made[storage][0] == number for storage in value.storages)
        return fresh or bool(self.propagated.mutated[op])

    def kernels(self, op: int) -> frozenset[int]:
        """The kernels that the op needs. A view needs none, though its indexing shows in its reader's kernel."""
        needed = self.traced.kernels
        return frozenset(needed[op]) if needed is not None and self.computes(op) else frozenset()


def cut_corpus(traced: Sequence[TracedGraph]) -> CutResult:
    """All subgraphs of a corpus. For large corpora `cuts` yields them one by one."""
    dropped: Counter[str] = Counter()
    variants = tuple(cuts(traced, dropped))
    return CutResult(variants, dropped)


def cuts(traced: Iterable[TracedGraph], dropped: Counter[str]) -> Iterator[Variant]:
    """Yields every subgraph: sole_op and fusible graph by graph, then typical. `dropped` counts what is left out."""
    prepared = []
    for graph in traced:
        ready = prepare(graph)
        if isinstance(ready, Invalid):
            dropped[f"graph: {ready.cause}"] += 1
            continue
        prepared.append(ready)
        dropped.update(f"op: {barrier}" for barrier in ready.barriers if barrier is not None)
        yield from _kept(ready, "sole_op", sole_ops(ready, dropped), dropped)
        if graph.kernels is None:
            dropped["fusible: graph without kernel counts"] += 1
        else:
            yield from _kept(ready, "fusible", fusible_ranges(ready), dropped)
    texts = [
        [None if barrier else op_name(op) for op, barrier in zip(p.traced.graph.ops, p.barriers, strict=True)]
        for p in prepared
    ]
    found = repeats(texts, MIN_TYPICAL_OPS, MAX_OPS)
    for repeat in found:
        yield from _kept(prepared[repeat.text], "typical", [(repeat.start, repeat.end)], dropped)


def prepare(traced: TracedGraph) -> Prepared | Invalid:
    """What cutting needs to know of a traced graph; `Invalid` if it does not propagate on its own inputs."""
    propagated = propagate(traced.graph, traced.inputs)
    if isinstance(propagated, Invalid):
        return propagated
    made: dict[int, list[int]] = {}
    for number, value in enumerate(propagated.values):
        for storage in value.storages:
            made.setdefault(storage, []).append(number)
    known = intervals(traced.graph, traced.inputs, propagated)
    return Prepared(traced, propagated, last_uses(traced.graph), _barriers(traced), made, known)


def _barriers(traced: TracedGraph) -> list[str | None]:
    barriers: list[str | None] = []
    open_regions: dict[int, bool] = {}
    for number, op in enumerate(traced.graph.ops):
        if is_context(op):
            barriers.append("context")
            if op.target.endswith("._enter_autocast"):
                open_regions[traced.graph.inputs + number] = argument(op, 2, "enabled", True) is not False
            for ref in refs(op.args):
                open_regions.pop(ref.index, None)
        elif is_random(op):
            barriers.append("randomness")
        else:
            barriers.append("under autocast" if any(open_regions.values()) else None)
    return barriers


def sole_ops(prepared: Prepared, dropped: Counter[str]) -> Iterator[tuple[int, int]]:
    """The range of each op that computes on tensors."""
    for op, barrier in enumerate(prepared.barriers):
        if barrier is None and prepared.computes(op):
            yield op, op + 1
        elif barrier is None:
            dropped["sole_op: computes nothing (a view, a size, an identity)"] += 1


def fusible_ranges(prepared: Prepared) -> Iterator[tuple[int, int]]:
    """Kernel-count plateaus: maximal, disjoint ranges in which no op needs a kernel that the first op does not.

    A range starts at an op that needs a kernel. Ops that need none (views, dropout in evaluation) come along, but not
    at the end. At least two ops must need a kernel: a convolution and a view of its result are nothing to fuse.
    """
    count = len(prepared.traced.graph.ops)
    start = 0
    while start < count:
        allowed = prepared.kernels(start)
        if not allowed or prepared.barriers[start]:
            start += 1
            continue
        end = start + 1
        while end < min(count, start + MAX_OPS) and not prepared.barriers[end] and prepared.kernels(end) <= allowed:
            end += 1
        following = end
        while not prepared.kernels(end - 1):
            end -= 1
        if _needing(prepared, start, end) > 1:
            yield start, end
        start = following


def _needing(prepared: Prepared, start: int, end: int) -> int:
    return sum(bool(prepared.kernels(op)) for op in range(start, end))


def _kept(
    prepared: Prepared, category: str, ranges: Iterable[tuple[int, int]], dropped: Counter[str]
) -> Iterator[Variant]:
    for start, end in ranges:
        variant = cut_range(prepared, category, start, end)
        if isinstance(variant, Variant):
            yield variant
        else:
            dropped[f"{category}: {variant}"] += 1


def cut_range(prepared: Prepared, category: str, start: int, end: int) -> Variant | str:
    """The subgraph of ops `[start, end)`, moved so that only tensors cross its border; or why there is none."""
    moved = _within_tensors(prepared, start, end)
    if moved is None or not _is_enough(prepared, category, *moved):
        return "something other than a tensor crosses the border"
    start, end = moved
    problem = _memory_problem(prepared, start, end)
    if problem:
        return problem
    traced, values = prepared.traced, prepared.propagated.values
    part = cut(traced.graph, start, end, prepared.last)
    if not part.inputs:
        return "no input"
    outputs = [values[number] for number in part.outputs]
    if not all(isinstance(value, TensorValue) for value in outputs):
        return "no tensor comes out"
    infos = [values[n] for n in (*part.inputs, *range(prepared.inputs + start, prepared.inputs + end))]
    needs = required(part.graph, infos)
    needed_kernels = None if traced.kernels is None else {k for op in traced.kernels[start:end] for k in op}
    return Variant(
        category=category,
        graph=part.graph,
        inputs=tuple(_input(prepared, number, f"in_{n}", needs[n]) for n, number in enumerate(part.inputs)),
        outputs=tuple(Output(value.dtype, value.shape, value.stride) for value in outputs),
        sources=(Source(traced.source, start, end),),
        kernels=None if needed_kernels is None else len(needed_kernels),
    )


def _input(prepared: Prepared, number: int, name: str, needed: Interval) -> Input:
    value = prepared.propagated.values[number]
    hints = drawn_from(value, prepared.known[number], needed)
    role = "input"
    if number < prepared.inputs:
        given = prepared.traced.inputs[number]
        role = given.role
        if hints["mean"] is not None:  # nothing bounds it: the model's own distribution
            hints |= {"mean": given.mean or 0.0, "std": 1.0 if given.std is None else given.std}
    return Input(name, role, value.dtype, value.shape, value.stride, None, **hints)


def _is_enough(prepared: Prepared, category: str, start: int, end: int) -> bool:
    """Whether a moved range still is one of its category."""
    if category == "fusible":
        return end - start <= MAX_OPS and _needing(prepared, start, end) > 1
    if category == "typical":
        computing = any(prepared.computes(op) for op in range(start, end))
        return MIN_TYPICAL_OPS <= end - start <= MAX_OPS and computing
    return end > start


def _within_tensors(prepared: Prepared, start: int, end: int) -> tuple[int, int] | None:
    """The range, moved until what enters and leaves it are tensors: over the `getitem`s that directly follow a tuple's
    maker, else down to the longest part between the ops at fault. None if nothing is left."""
    graph, values = prepared.traced.graph, prepared.propagated.values
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
    graph = prepared.traced.graph
    makers = {prepared.inputs + op for op in escaping}
    return reach <= len(graph.ops) and all(
        base_name(op) == "getitem" and next(refs(op.args)).index in makers for op in graph.ops[end:reach]
    )


def _memory_problem(prepared: Prepared, start: int, end: int) -> str | None:
    """Why the range may not change the memory that it changes, if so."""
    changed = frozenset().union(*prepared.propagated.mutated[start:end])
    if not changed:
        return None
    first = prepared.inputs + start
    graph = prepared.traced.graph
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

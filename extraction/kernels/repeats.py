"""Equal blocks in a row: kernels are counted in a few of them, and the others need the same.

A transformer of 24 equal layers is lowered with four: what a layer in the middle needs, all in the middle need. The
first two and the last two stay, since the schedule joins ops across the border of blocks, and so that two neighbours in
the middle show whether they need the same kernels.
"""

from bisect import bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from extraction.analysis.propagate import Propagated
from extraction.analysis.values import TensorValue, ValueInfo
from storage.graph.record import Graph, Op, Ref, map_refs, refs
from storage.records import Input

_BEFORE, _BEHIND = 2, 2
"""Blocks that stay before and behind those that are left out."""
_LEAST = 2
"""Blocks that are left out at least: then nothing in a block behind them reads one before them."""
Needs = list[frozenset[int]]
"""For each op, the numbers of its kernels."""


@dataclass(frozen=True)
class _Gap:
    """Ops `[start, end)` are left out; blocks have `period` ops."""

    start: int
    end: int
    period: int

    @property
    def blocks(self) -> int:
        return (self.end - self.start) // self.period


@dataclass(frozen=True)
class Shortened:
    """A graph without most blocks of each row: ops in `gaps` of the whole graph are left out."""

    graph: Graph
    inputs: tuple[Input, ...]
    gaps: list[_Gap]

    def whole(self, needs: Sequence[frozenset[int]]) -> Needs | None:
        """The kernels of each op of the whole graph, numbered as in its schedule, from those of this graph; None where
        neighbouring blocks do not need the same."""
        found = list(needs)
        for gap in self.gaps:
            block = _stride(found, gap)
            if block is None:
                return None
            first, stride = block
            own = found[gap.start - gap.period : gap.start]
            between = [_later(each, number * stride) for number in range(1, gap.blocks + 1) for each in own]
            shift = gap.blocks * stride
            behind = [frozenset(k + shift if k >= first else k for k in each) for each in found[gap.start :]]
            found = [*found[: gap.start], *between, *behind]
        return found


def _stride(found: Sequence[frozenset[int]], gap: _Gap) -> tuple[int, int] | None:
    """The first kernel of the block before a gap, and how many kernels later those of the next block are; None where
    the two blocks differ, or kernels of later ops come before theirs."""
    start = gap.start - gap.period
    own, after = found[start : gap.start], found[gap.start : gap.start + gap.period]
    earlier = frozenset().union(*found[:start])
    middle = frozenset().union(*own) - earlier
    later = frozenset().union(*found[gap.start :]) - earlier - middle
    if not middle or not later or not max(earlier, default=-1) < min(middle) <= max(middle) < min(later):
        return None
    stride = min(later) - min(middle)
    alike = all(_later(a, stride) == b for a, b in zip(own, after, strict=True))
    return (min(middle), stride) if alike else None


def shortened(graph: Graph, inputs: Sequence[Input], propagated: Propagated) -> Shortened | None:
    """The graph with four of each row of equal blocks; None where that leaves out nothing."""
    gaps = list(_gaps(graph, propagated.values))
    if not gaps:
        return None
    starts = [gap.start for gap in gaps]

    def place(op: int) -> int:
        """The op that stands for this one: of what is left out, the one in the last block before."""
        number = bisect_right(starts, op) - 1
        return op - (gaps[number].end - gaps[number].start) if number >= 0 and op < gaps[number].end else op

    kept = [op for op in range(len(graph.ops)) if place(op) == op]
    used = dict.fromkeys(ref.index for op in kept for ref in _refs(graph.ops[op]) if ref.index < graph.inputs)
    given = [n for n in range(graph.inputs) if n in used]
    numbers = {old: new for new, old in enumerate(given)}
    numbers |= {graph.inputs + op: len(given) + new for new, op in enumerate(kept)}

    def moved(ref: Ref) -> Ref:
        return Ref(numbers[ref.index if ref.index < graph.inputs else graph.inputs + place(ref.index - graph.inputs)])

    ops = tuple(
        Op(op.kind, op.target, map_refs(op.args, moved), map_refs(op.kwargs, moved))
        for op in (graph.ops[number] for number in kept)
    )
    output = tuple(moved(ref) for ref in refs(graph.output) if ref.index >= graph.inputs)
    return Shortened(Graph(len(given), ops, output), tuple(inputs[n] for n in given), gaps)


def _gaps(graph: Graph, values: Sequence[ValueInfo]) -> Iterator[_Gap]:
    texts = _texts(graph, values)
    places: dict[Hashable, list[int]] = {}
    for op, text in enumerate(texts):
        places.setdefault(text, []).append(op)
    start = 0
    while start < len(texts):
        gaps = (_gap(texts, start, other - start) for other in places[texts[start]] if other > start)
        closed = (gap for gap in gaps if gap and _is_closed(graph, start, gap))
        best = max(closed, key=lambda gap: gap.end - gap.start, default=None)
        if best is None:
            start += 1
        else:
            yield best
            start = best.end + _BEHIND * best.period


def _gap(texts: Sequence[Hashable], start: int, period: int) -> _Gap | None:
    """What of a row of equal blocks of `period` ops from `start` on is left out; None where the row is too short."""
    least = _BEFORE + _LEAST + _BEHIND
    if texts[start : start + (least - 1) * period : period].count(texts[start]) < least - 1:
        return None
    end = start
    while end + period < len(texts) and texts[end] == texts[end + period]:
        end += 1
    blocks = (end - start) // period + 1
    if blocks < least:
        return None
    return _Gap(start + _BEFORE * period, start + (blocks - _BEHIND) * period, period)


def _is_closed(graph: Graph, start: int, gap: _Gap) -> bool:
    """Whether ops of a row of blocks read, of the row, their own block and the one before alone, and what comes behind
    the row, or out of the graph, is in none of the blocks that are left out."""
    first, end = graph.inputs + start, gap.end + _BEHIND * gap.period
    for number in range(start, len(graph.ops)):
        for ref in _refs(graph.ops[number]):
            if ref.index < first:
                continue
            if number < end and graph.inputs + number - ref.index > 2 * gap.period:
                return False
            if number >= end and gap.start <= ref.index - graph.inputs < gap.end:
                return False
    return not any(gap.start <= ref.index - graph.inputs < gap.end for ref in refs(graph.output))


def _texts(graph: Graph, values: Sequence[ValueInfo]) -> list[Hashable]:
    """What is the same for ops that do the same to values of the same layouts: a value is told by how many ops ago it
    was read the last time, or made; an input that is new by its layout."""
    last: dict[int, int] = {}
    returned = {ref.index for ref in refs(graph.output)}
    found: list[Hashable] = []
    for number, op in enumerate(graph.ops):

        def text(ref: Ref, number: int = number) -> str:
            if ref.index in last:
                return f"read {number - last[ref.index]} ops ago"
            if ref.index >= graph.inputs:
                return f"made {number - ref.index + graph.inputs} ops ago"
            return f"new {_layout(values[ref.index])}"

        made = graph.inputs + number
        arguments = repr((map_refs(op.args, text), map_refs(op.kwargs, text)))
        found.append((op.kind, op.target, arguments, _layout(values[made]), made in returned))
        last.update({ref.index: number for ref in _refs(op)})
    return found


def _layout(value: ValueInfo) -> str:
    return f"{value.dtype} {value.shape} {value.stride}" if isinstance(value, TensorValue) else value.kind


def _refs(op: Op) -> list[Ref]:
    return list(refs((op.args, op.kwargs)))


def _later(kernels: frozenset[int], by: int) -> frozenset[int]:
    return frozenset(kernel + by for kernel in kernels)

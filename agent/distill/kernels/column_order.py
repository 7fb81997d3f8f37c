"""In which order a kernel's columns come, and in which order eager adds what they have.

TorchInductor's loops go along reduced dimensions in the order in which memory is read best. Eager's go along them as
they lie in the memory of what is added, which a kernel may never write.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import sympy
from torch._inductor.loop_body import MemoryUsageType
from torch._inductor.scheduler import SchedulerNode

from agent.distill.eager.sum_order import SumOrder
from agent.distill.kernels.index_expressions import digits
from agent.distill.kernels.value_graph import COLUMN

_DIMENSIONS = 5
"""Of more reduced dimensions the order of loops is not looked for."""


@dataclass(frozen=True)
class ColumnOrder:
    """The columns of a kernel by their numbers in eager's order: a number's digits of these `sizes`, the first one
    counting most, and how many columns of TorchInductor's loops each digit counts (`weights`)."""

    sizes: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()

    @property
    def is_same(self) -> bool:
        """Whether TorchInductor's loops have eager's order."""
        return not self.plain().sizes[1:]

    def plain(self) -> "ColumnOrder":
        """With digits that count on as one digit joined: equal for equal orders."""
        joined: list[tuple[int, int]] = []
        for size, weight in zip(self.sizes, self.weights, strict=True):
            if joined and joined[-1][1] == size * weight:
                joined[-1] = joined[-1][0] * size, weight
            else:
                joined.append((size, weight))
        return ColumnOrder(*zip(*joined, strict=True)) if joined else self

    def coordinates(self, sizes: Sequence[int]) -> list[sympy.Expr]:
        """The coordinates of the kernel's column in loops of these sizes, which go along all columns."""
        if self.is_same:
            return digits(COLUMN, sizes)
        found = list(zip(digits(COLUMN, self.sizes), self.sizes, self.weights, strict=True))
        strides = [math.prod(sizes[n + 1 :]) for n in range(len(sizes))]
        coordinates: list[sympy.Expr] = [sympy.S.Zero] * len(sizes)
        for digit, size, weight in found:
            inside = [n for n, s in enumerate(strides) if weight % s == 0 and weight * size <= s * sizes[n]]
            if not inside:  # a digit that counts along two loops
                return digits(self.number(), sizes)
            coordinates[inside[0]] += digit * (weight // strides[inside[0]])
        return coordinates

    def number(self) -> sympy.Expr:
        """The column's number in TorchInductor's loops."""
        if self.is_same:
            return COLUMN
        return sum(d * w for d, w in zip(digits(COLUMN, self.sizes), self.weights, strict=True))


SAME = ColumnOrder()
"""That of TorchInductor's loops."""


def column_order(part: SchedulerNode, order: SumOrder) -> ColumnOrder | None:
    """How the columns of a scheduled reduction come in the order in which eager adds; None if that is not found."""
    (_, inner), default, _ = part.node.get_default_sizes_body()
    sizes = [int(size) for size in inner]
    if len(sizes) < 2:
        return SAME
    turn, loops = _turn(order, sizes), _loops(part, default, sizes)
    if turn is None or loops is None:
        return None
    weights = [math.prod(sizes[later] for later in loops[loops.index(n) + 1 :]) for n in range(len(sizes))]
    found = ColumnOrder(tuple(sizes[n] for n in turn), tuple(weights[n] for n in turn))
    return SAME if found.is_same else found


def counts_as_given(part: SchedulerNode) -> bool:
    """Whether the loops of a scheduled reduction go along its dimensions as they are given, so that a column's number
    in them is its place among all reduced elements."""
    (_, inner), default, _ = part.node.get_default_sizes_body()
    sizes = [int(size) for size in inner]
    return len(sizes) < 2 or _loops(part, default, sizes) == tuple(range(len(sizes)))


def _turn(order: SumOrder, sizes: Sequence[int]) -> list[int] | None:
    """Reduced dimensions in eager's order, the outermost first; `sizes` are those with more than one element. None
    where eager's dimensions are others."""
    addition = order.addition
    reduced, turn = ([d for d in dims if addition.shape[d] > 1] for dims in (addition.reduced, addition.turn))
    if turn == reduced:
        return list(range(len(sizes)))
    if [addition.shape[d] for d in reduced] != list(sizes):
        return None
    return [reduced.index(d) for d in turn]


def _loops(part: SchedulerNode, default: Any, sizes: Sequence[int]) -> tuple[int, ...] | None:
    """Reduced dimensions in the order of a node's loops, the outermost first, told from where it reads.

    `default` are the loops along the dimensions as they are given; those of the node are put in another order, and some
    of them are joined.
    """
    inner = [int(size) for size in part._body.sizes[1]]
    pairs = _indices(part._body, default)
    if pairs is None or len(sizes) > _DIMENSIONS:
        return None
    for order in permutations(range(len(sizes))):
        groups = _joined(order, sizes, inner)
        if groups is not None and all(
            _same(pairs, default, part._body, point, _merged(point, groups, sizes)) for point in _points(sizes)
        ):
            return order
    return None


def _indices(body: Any, default: Any) -> list[tuple[sympy.Expr, sympy.Expr]] | None:
    """All positions that the loops at hand ask for, beside those of the default ones."""
    pairs = []
    for kind in MemoryUsageType:
        entries, others = (each.memory_usage[kind] for each in (body, default))
        if [e.buffer_name for e in entries] != [e.buffer_name for e in others]:
            return None
        for entry, other in zip(entries, others, strict=True):
            pairs.append((default.indexing_exprs[other.index_name], body.indexing_exprs[entry.index_name]))
    return list(dict.fromkeys(pairs))


def _joined(order: Sequence[int], sizes: Sequence[int], inner: Sequence[int]) -> list[list[int]] | None:
    """The dimensions of each loop if they come in this order; None if no loops of the sizes `inner` have them."""
    left = list(order)
    groups: list[list[int]] = []
    for size in inner:
        group: list[int] = []
        while left and math.prod(sizes[n] for n in group) < size:
            group.append(left.pop(0))
        if math.prod(sizes[n] for n in group) != size:
            return None
        groups.append(group)
    return groups if not left else None


def _merged(point: Sequence[int], groups: Sequence[Sequence[int]], sizes: Sequence[int]) -> list[int]:
    """The loops' variables at a point of the dimensions."""
    found = []
    for group in groups:
        number = 0
        for n in group:
            number = number * sizes[n] + point[n]
        found.append(number)
    return found


def _points(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Points at which orders differ: next to the origin, at the far ends, and some between."""
    for dimension, size in enumerate(sizes):
        for place in {1, size - 1}:
            yield tuple(place if n == dimension else 0 for n in range(len(sizes)))
    for step in range(1, 7):
        yield tuple((7919 * step + 104729 * n) // 3 % size for n, size in enumerate(sizes))
    yield tuple(size - 1 for size in sizes)


def _same(
    pairs: Sequence[tuple[sympy.Expr, sympy.Expr]],
    default: Any,
    body: Any,
    point: Sequence[int],
    merged: Sequence[int],
) -> bool:
    """Whether both loops ask for the same positions of the first row there."""
    known = [
        dict.fromkeys(_variables(each, 0), 0) | dict(zip(_variables(each, 1), at, strict=True))
        for each, at in ((default, point), (body, merged))
    ]
    return all(a.subs(known[0]) == b.subs(known[1]) for a, b in pairs)


def _variables(body: Any, which: int) -> list[sympy.Symbol]:
    """Of the rows' loops, or the reduced ones; a dimension of one element has none."""
    return [variable for variable in body.vars[which] if variable.is_Symbol]

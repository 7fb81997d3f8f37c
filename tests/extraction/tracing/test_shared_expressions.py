"""Walks of an expression whose parts stand in it many times, against sympy's and torch's own."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import sympy
from torch.fx.experimental import symbolic_shapes
from torch.utils._sympy import interp
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from extraction.tracing.shared_expressions import visited_once

SIZE = sympy.Symbol("size", integer=True, positive=True)
ARGS = type(SIZE).args.fget


def deep(symbol: sympy.Symbol = SIZE) -> sympy.Expr:
    """Few different parts, each twice in the next."""
    expression: sympy.Expr = symbol
    for step in range(10):
        expression = FloorDiv(expression + step, 2) + FloorDiv(expression + 3, 4)
    return expression


def bounds(context: AbstractContextManager[Any], *ranges: ValueRanges) -> tuple[list[ValueRanges], int]:
    """The bounds of one expression at each range of its symbol, and the steps that they took together."""
    with context, patch.object(interp, "_run_sympy_handler", wraps=interp._run_sympy_handler) as steps:
        return [bound_sympy(deep(), {SIZE: each}) for each in ranges], steps.call_count


def test_bounds_are_the_same_in_fewer_steps() -> None:
    small, large = ValueRanges(2, 64), ValueRanges(1000, 2000)
    plain, steps = bounds(nullcontext(), small, large)
    shared, fewer = bounds(visited_once(), small, large)
    assert plain == shared and plain[0] != plain[1]
    assert 20 * fewer < steps


def walked(context: AbstractContextManager[Any], symbol: sympy.Symbol) -> tuple[list[Any], int]:
    """What each walk finds in an expression of this symbol, and how often a node's parts were asked for."""
    expression, other = deep(symbol), sympy.Symbol(f"other_{symbol}", integer=True, positive=True)
    asked = 0

    def args(self: sympy.Basic) -> tuple[sympy.Basic, ...]:
        nonlocal asked
        asked += 1
        return ARGS(self)

    with context, patch.object(sympy.Basic, "args", property(args)):
        found = [
            expression.free_symbols == {symbol},
            {part.xreplace({symbol: SIZE}) for part in expression.atoms(FloorDiv)},
            expression.atoms(),
            expression.has(sympy.Max),
            expression.has(symbol),
            expression.xreplace({symbol: SIZE}),
            expression.xreplace({other: SIZE}) is expression,
            symbolic_shapes._fast_expand(3 * (expression + 1)).xreplace({symbol: SIZE}),
        ]
    return [each - {symbol} if isinstance(each, set) else each for each in found], asked


def test_walks_find_the_same_in_fewer_steps() -> None:
    first, second = (sympy.Symbol(name, integer=True, positive=True) for name in ("first", "second"))
    plain, steps = walked(nullcontext(), first)  # another symbol: sympy remembers what it has asked
    shared, fewer = walked(visited_once(), second)
    assert plain == shared and plain[0] and plain[6]
    assert 5 * fewer < steps

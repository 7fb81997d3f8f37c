"""Bounds of expressions whose parts stand in them many times, against bounds without what is remembered."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest.mock import patch

import sympy
from torch.utils._sympy import interp
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from extraction.tracing.shared_expressions import bounded_once

SIZE = sympy.Symbol("size", integer=True, positive=True)


def bounds(context: AbstractContextManager[Any], *ranges: ValueRanges) -> tuple[list[ValueRanges], int]:
    """The bounds of one expression at each range of its symbol, and the steps that they took together."""
    expression: sympy.Expr = SIZE
    for step in range(10):
        expression = FloorDiv(expression + step, 2) + FloorDiv(expression + 3, 4)
    with context, patch.object(interp, "_run_sympy_handler", wraps=interp._run_sympy_handler) as steps:
        return [bound_sympy(expression, {SIZE: each}) for each in ranges], steps.call_count


def test_bounds_are_the_same_in_fewer_steps() -> None:
    small, large = ValueRanges(2, 64), ValueRanges(1000, 2000)
    plain, steps = bounds(nullcontext(), small, large)
    shared, fewer = bounds(bounded_once(), small, large)
    assert plain == shared and plain[0] != plain[1]
    assert 20 * fewer < steps

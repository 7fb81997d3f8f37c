"""Sums of an index's digits as the number that they are the digits of, found without sympy's pattern matching.

TorchInductor looks for them in every index that divides, by matching each pair of its terms against patterns. That was
a twentieth of lowering a small graph.
"""

import sympy
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

_SIZE = sympy.Symbol("size", integer=True, positive=True)


def join_dimensions(expr: sympy.Expr) -> sympy.Expr:
    """As TorchInductor's: `i % 32 + 32 * (i // 32 % 4)` as `i % 128`, and `i % 32 + 32 * (i // 32)` as `i`."""
    if not isinstance(expr, sympy.Add):
        return expr
    parts = [part for term in expr.args if (part := _scaled(term)) is not None]
    digits = [part for part in parts if isinstance(part[2], ModularIndexing)]
    for low, scale, digit in digits if len(parts) > 1 else ():
        base, divisor, size = digit.args
        above = ModularIndexing(base, divisor * size, _SIZE)
        for high, factor, next_digit in digits:
            if high is not low and factor == scale * size and next_digit.args[:2] == above.args[:2]:
                joined = scale * ModularIndexing(base, divisor, size * next_digit.args[2])
                return join_dimensions(expr - low - high + joined)
    for low, scale, digit in digits if len(parts) > 1 else ():
        base, divisor, size = digit.args
        high = scale * size * FloorDiv(base, divisor * size)
        if high in expr.args:
            return join_dimensions(expr - low - high + scale * FloorDiv(base, divisor))
    return expr


def _scaled(term: sympy.Expr) -> tuple[sympy.Expr, sympy.Expr, sympy.Expr] | None:
    """A term that is a digit, or what is above all digits, times a number: itself, the number, and the other factor."""
    factors = sympy.Mul.make_args(term)
    divisions = [factor for factor in factors if isinstance(factor, FloorDiv | ModularIndexing)]
    if len(divisions) != 1:
        return None
    return term, sympy.Mul(*(factor for factor in factors if factor is not divisions[0])), divisions[0]

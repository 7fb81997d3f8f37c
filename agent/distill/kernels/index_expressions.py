"""Index expressions: from TorchInductor's symbolic form to integer arithmetic in a kernel's source."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import sympy
import torch
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import FloorDiv, Identity, ModularIndexing
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

from agent.distill.kernels.text_template import slot
from storage.errors import PassNetError

Ranges = Mapping[sympy.Symbol, int]
"""Symbol → how many values it takes, from zero."""


class Unsupported(PassNetError):
    """Something in a loop body that this author does not write."""


def simplified(expression: sympy.Expr, ranges: Ranges) -> sympy.Expr:
    """The expression without the divisions and remainders that the symbols' ranges make redundant."""
    sizes, known = V.graph.sizevars, {s: size for s, size in ranges.items() if expression.has(s)}
    return sizes.combine_modular_indexing_pairs(sizes.simplify_with_ranges(sympy.expand(expression), known))


def digits(flat: sympy.Expr, sizes: Sequence[int]) -> list[sympy.Expr]:
    """The coordinates, in a box of these sizes, of a flat row-major position."""
    coordinates = []
    stride = 1
    for size in reversed(sizes):
        coordinates.append(sympy.S.Zero if size == 1 else ModularIndexing(flat, stride, size))
        stride *= size
    return coordinates[::-1]


_CALLS = {"Abs": "tl.abs", "Min": "tl.minimum", "Max": "tl.maximum"}
"""sympy's functions, and TorchInductor's of the same name."""


def within(expression: sympy.Expr, ranges: Ranges, dtype: torch.dtype) -> bool:
    """Whether the expression, and all that it is computed from, fits 32 bits and is exact in `dtype`.

    Asked for all values of the symbols in their ranges; a symbol without a range may be anything.
    """
    low, high = _exact(dtype)
    known = {symbol: ValueRanges(0, size - 1) for symbol, size in ranges.items()}
    bounds = (bound_sympy(part, known) for part in sympy.preorder_traversal(expression))
    return all(bound.lower >= low and bound.upper <= high for bound in bounds)


def _exact(dtype: torch.dtype) -> tuple[int, int]:
    """The least and the greatest integer of 32 bits such that the type holds all between them."""
    if dtype.is_floating_point:
        limit = min(int(2 / torch.finfo(dtype).eps), 2**31 - 1)
        return -limit, limit
    limits = torch.iinfo(dtype if dtype.itemsize < 4 else torch.int32)
    return limits.min, limits.max


def text(expression: sympy.Expr, ranges: Ranges, name: Callable[[sympy.Symbol], str]) -> str:
    """The expression as source; its integers are slots. Raises Unsupported on what the source cannot say."""

    def atom(e: sympy.Expr) -> str:
        written = write(e)
        return written if e.is_Symbol or (e.is_Integer and e >= 0) else f"({written})"

    def raised(e: sympy.Expr, step: sympy.Expr) -> tuple[sympy.Expr, int]:
        """The expression plus so many steps that it is nonnegative, and how many. Source divides towards zero."""
        known = {s: ValueRanges(0, ranges[s] - 1) for s in e.free_symbols if s in ranges}
        bound = bound_sympy(e, known) if len(known) == len(e.free_symbols) else ValueRanges.unknown_int()
        if bound.lower >= 0:
            return e, 0
        if bound.lower.is_finite and step.is_Integer and step > 0:
            steps = -(bound.lower // step)
            if bound.upper + steps * step < 2**31:
                return e + steps * step, int(steps)
        raise Unsupported(f"an index divides {e}, which may be negative")

    def write(e: sympy.Expr) -> str:
        if e.is_Integer:
            return slot(int(e))
        if e.is_Symbol:
            return name(e)
        if e.is_Add:
            first, *rest = e.as_ordered_terms()
            return write(first) + "".join(_signed(term, write) for term in rest)
        if e.is_Mul:
            return " * ".join(atom(factor) for factor in reversed(e.as_ordered_factors()))
        if e.is_Pow and e.exp.is_Integer and e.exp > 0:
            return " * ".join([atom(e.base)] * int(e.exp))
        if isinstance(e, Identity):
            return write(e.args[0])
        if isinstance(e, FloorDiv):
            base, steps = raised(*e.args)
            divided = f"{atom(base)} // {atom(e.args[1])}"
            return f"({divided} - {slot(steps)})" if steps else divided
        if isinstance(e, ModularIndexing):
            base, divisor, modulus = e.args
            base, _ = raised(base, divisor * modulus)  # whole turns
            divided = atom(base) if divisor == 1 else f"{atom(base)} // {atom(divisor)}"
            return f"{divided} % {atom(modulus)}"
        if called := _CALLS.get(type(e).__name__):
            parts = [write(part) for part in sorted(e.args, key=lambda part: part.is_Integer)]
            return (
                reduce(lambda left, right: f"{called}({left}, {right})", parts)
                if parts[1:]
                else f"{called}({parts[0]})"
            )
        raise Unsupported(f"an index contains {type(e).__name__}")

    return write(expression)


def _signed(term: sympy.Expr, write: Callable[[sympy.Expr], str]) -> str:
    if not term.could_extract_minus_sign():
        return f" + {write(term)}"
    negated = -term
    while isinstance(negated, Identity):
        negated = negated.args[0]
    return f" - ({write(negated)})" if negated.is_Add else f" - {write(negated)}"

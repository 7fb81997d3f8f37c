"""Index expressions as source: divisions round down, whatever is divided, though a kernel's round towards zero."""

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._sympy.functions import FloorDiv, ModularIndexing

from agent.distill.kernels.index_expressions import Unsupported, text
from agent.distill.kernels.text_template import merge
from agent.distill.kernels.value_graph import ROW


class _Divided(int):
    """An integer as in a kernel, where a negative one must not be divided."""

    def __floordiv__(self, other):
        assert self >= 0
        return _Divided(int(self) // int(other))

    def __mod__(self, other):
        assert self >= 0
        return _Divided(int(self) % int(other))

    def __add__(self, other):
        return _Divided(int(self) + int(other))

    def __sub__(self, other):
        return _Divided(int(self) - int(other))

    def __mul__(self, other):
        return _Divided(int(self) * int(other))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other):
        return _Divided(int(other) - int(self))


def _value(expression, rows, row):
    source, _, _ = merge([text(expression, {ROW: rows}, lambda symbol: "row")], lambda *_: "")
    return int(eval(source, {"row": _Divided(row)}))


@given(
    st.integers(-6, 6).filter(bool), st.integers(-300, 300), st.integers(1, 9), st.integers(1, 9), st.integers(1, 40)
)
def test_divisions_round_down(factor, offset, divisor, modulus, rows):
    position = factor * ROW + offset
    for row in (0, rows // 2, rows - 1):
        number = factor * row + offset
        assert _value(FloorDiv(position, divisor), rows, row) == number // divisor
        assert _value(ModularIndexing(position, divisor, modulus), rows, row) == number // divisor % modulus
        nested = ModularIndexing(FloorDiv(position, divisor) - 7, 1, modulus)
        assert _value(nested, rows, row) == (number // divisor - 7) % modulus


def test_what_may_be_any_number_is_not_divided():
    free = sympy.Symbol("free", integer=True)
    with pytest.raises(Unsupported, match="may be negative"):
        text(FloorDiv(free, 3), {}, str)
    with pytest.raises(Unsupported, match="may be negative"):
        text(FloorDiv(ROW - 2**30, 2**31 - 8), {ROW: 2**31}, str)

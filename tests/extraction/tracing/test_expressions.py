"""torch's expressions of sizes as text: the same number at every point, or no text."""

import pytest
import sympy
import torch.utils._sympy.functions as torch_functions
from hypothesis import given
from hypothesis import strategies as st

from extraction.tracing.expressions import Untranslatable, number_at, text_of
from storage.graph.symbols import evaluate

BATCH, HEIGHT = (sympy.Symbol(name, integer=True, positive=True) for name in ("batch", "height"))
SIZES = {"batch": 2, "height": 30}

numbers = st.integers(1, 9).map(sympy.Integer)
leaves = st.sampled_from([BATCH, HEIGHT]) | numbers


def deeper(inner: st.SearchStrategy[sympy.Expr]) -> st.SearchStrategy[sympy.Expr]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda p: p[0] + p[1]),
        pairs.map(lambda p: p[0] - 3 * p[1]),
        pairs.map(lambda p: p[0] * p[1]),
        pairs.map(lambda p: torch_functions.Max(*p)),
        pairs.map(lambda p: torch_functions.Min(*p)),
        st.tuples(inner, numbers).map(lambda p: torch_functions.FloorDiv(*p)),
        st.tuples(inner, numbers).map(lambda p: torch_functions.CeilDiv(*p)),
        st.tuples(inner, numbers).map(lambda p: torch_functions.PythonMod(*p)),
        st.tuples(inner, numbers, numbers).map(
            lambda p: torch_functions.ModularIndexing(torch_functions.Max(p[0], 0), p[1], p[2])
        ),
        inner.map(lambda e: torch_functions.FloorToInt(torch_functions.IntTrueDiv(e, sympy.Integer(7)))),
        inner.map(lambda e: torch_functions.CeilToInt(torch_functions.IntTrueDiv(e, sympy.Integer(7)))),
    )


@given(st.recursive(leaves, deeper, max_leaves=6), st.integers(1, 9), st.integers(1, 900))
def test_the_text_has_the_value_of_the_expression_at_every_point(expr: sympy.Expr, batch: int, height: int) -> None:
    text = text_of(expr, SIZES)
    assert evaluate(text, SIZES) == number_at(expr, {BATCH: 2, HEIGHT: 30})
    value = number_at(expr, {BATCH: batch, HEIGHT: height})
    found = evaluate(text, {"batch": batch, "height": height})
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (BATCH * torch_functions.FloorDiv(HEIGHT, 4), "batch*(height//4)"),
        (torch_functions.FloorDiv(HEIGHT - 1, 2) + 1, "((height - 1)//2) + 1"),
        (torch_functions.Mod(HEIGHT, 7), "height%7"),
        (HEIGHT / 2, "(height)//(2)"),
        (torch_functions.FloatTrueDiv(sympy.Float(1.0), torch_functions.ToFloat(HEIGHT)), "1.0/float(height)"),
        (torch_functions.PowByNatural(HEIGHT, sympy.Integer(3)), "height**3"),
    ],
)
def test_texts_read_as_people_write_them(expr: sympy.Expr, text: str) -> None:
    assert text_of(expr, SIZES) == text


@pytest.mark.parametrize(
    "expr",
    [
        torch_functions.RoundToInt(torch_functions.IntTrueDiv(HEIGHT, sympy.Integer(7))),
        torch_functions.Where(HEIGHT > 3, HEIGHT, BATCH),
        torch_functions.OpaqueUnaryFn_log(torch_functions.ToFloat(HEIGHT)),
        sympy.Integer(2) ** 70 * HEIGHT,
        sympy.prod(HEIGHT + number for number in range(200)),
    ],
)
def test_what_the_grammar_cannot_say_is_refused(expr: sympy.Expr) -> None:
    with pytest.raises(Untranslatable):
        text_of(expr, SIZES)


def test_a_number_that_needs_data_has_no_value() -> None:
    with pytest.raises(Untranslatable, match="no value"):
        number_at(HEIGHT + 1, {BATCH: 2})

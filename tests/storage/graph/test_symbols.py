import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.graph.as_json import from_json, to_json
from storage.graph.record import RUN_DEVICE, Graph, GraphError, Op, Ref, Sym
from storage.graph.symbols import at, evaluate, names, size, symbols_of

SIZES = {"batch": 2, "height": 224}


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(["batch", "height", "1", "3", "32", "-7"]))
    left, right = draw(expressions(depth=depth - 1)), draw(expressions(depth=depth - 1))
    form = draw(st.sampled_from(["({} + {})", "({} - {})", "({} * {})", "({} // {})", "({} % {})", "max({}, {})"]))
    return form.format(left, right)


@given(expressions())
def test_expressions_have_the_values_that_python_gives_them(expression: str) -> None:
    try:
        expected = eval(expression, {}, dict(SIZES))  # made above
    except ZeroDivisionError:
        with pytest.raises(GraphError, match="has no value"):
            evaluate(expression, SIZES)
    else:
        assert evaluate(expression, SIZES) == expected
        assert names(expression) <= SIZES.keys()


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')", "batch.__class__", "[1]", "lambda: 1", "f'{batch}'", "batch if 1 else 2",
        "1 << 99", "not 1", "True", "'a'", "max(x=1)", "max()", "open(1)", "", "(", "(" * 400,
        "1" * 999, "1e999", "1+" * 2000 + "1", "batch\nheight", "wide", "2**2**9", "9**8**8", "(0-2)**0.5", "1//0",
        "int(1/0.0)",
    ],
)  # fmt: skip
def test_what_is_no_size_is_refused_quickly(text: str) -> None:
    start = time.process_time()
    with pytest.raises(GraphError):
        evaluate(text, SIZES)
    assert time.process_time() - start < 1


def test_a_dimension_is_a_whole_number() -> None:
    assert size("height//2", SIZES) == 112
    with pytest.raises(GraphError, match="not a whole number"):
        size("height/3", SIZES)


def test_a_graph_at_a_point_has_numbers() -> None:
    view = Op("method", "view", (Ref(0), Sym("batch"), [Sym("height//2"), 3]), {"at": slice(None, Sym("height"), None)})
    graph = Graph(1, (view, Op("function", "torch.relu", (Ref(1),), {})), (Ref(2), Sym("batch")))
    assert symbols_of(graph) == {"batch", "height"}
    found = at(graph, SIZES)
    assert found.ops[0].args == (Ref(0), 2, [112, 3]) and found.ops[0].kwargs == {"at": slice(None, 224, None)}
    assert found.ops[1] is graph.ops[1] and found.output == (Ref(2), 2)
    assert symbols_of(found) == frozenset()
    with pytest.raises(GraphError, match="no size is given for height"):
        at(graph, {"batch": 1})


def test_symbolic_graphs_survive_json() -> None:
    graph = Graph(1, (Op("method", "view", (Ref(0), (Sym("batch*2"), RUN_DEVICE)), {}),), Ref(1))
    assert from_json(to_json(graph)) == graph

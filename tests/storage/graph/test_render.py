import ast

import torch
from hypothesis import given, settings

from storage.graph.as_fx import to_module
from storage.graph.record import Graph, Op, Ref
from storage.graph.render import render
from tests.support.graphs import corpus, drawn, matrices, records, run, runnable, same


@given(records())
@settings(max_examples=50)
def test_every_record_renders_as_python(graph: Graph) -> None:
    ast.parse(render(graph))


def _as_rendered(graph: Graph) -> torch.nn.Module:
    namespace: dict = {"inf": float("inf"), "nan": float("nan")}
    exec(compile(render(graph), "rendered", "exec"), namespace)  # the graphs here are this test's own
    return namespace["GraphModule"]()


@given(runnable(in_place=True))
def test_the_rendering_computes_what_the_record_computes(graph: Graph) -> None:
    inputs = [tensor.clone() for tensor in matrices(graph.inputs)]
    with torch.no_grad():
        outputs = [tensor.clone() for tensor in _as_rendered(graph)(*inputs)]
    expected, changed = run(graph, matrices(graph.inputs))
    assert same(outputs, expected)
    assert same(inputs, changed)


def test_real_graphs_render_as_what_they_compute() -> None:
    for traced in corpus():
        inputs = drawn(traced.inputs)
        with torch.no_grad():
            expected = to_module(traced.graph, "cpu").forward(*(t.clone() for t in inputs))
            (given,) = _as_rendered(traced.graph)(*(t.clone() for t in inputs))
        assert torch.equal(given, expected[0])


def test_precedence_and_subscripts() -> None:
    ops = (
        Op("function", "operator.pow", (-2, Ref(0)), {}),
        Op("function", "operator.getitem", (Ref(1), ((0, 1), slice(None, None, 2))), {}),
        Op("function", "operator.getitem", (Ref(1), (Ellipsis, None, 0)), {}),
        Op("function", "math.sqrt", (4,), {}),
    )
    source = render(Graph(1, ops, (Ref(2), Ref(3))))
    assert "(-2) ** in_0" in source
    assert "tmp_0[(0, 1), ::2]" in source
    assert "tmp_0[..., None, 0]" in source
    assert source.startswith("import math\nimport torch\n")

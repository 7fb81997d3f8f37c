from collections import Counter

import pytest
import torch

from extraction.analysis.prepared import prepare, tokens
from extraction.analysis.propagate import outputs_of, propagate
from extraction.cutting.cut import cut_graph, cut_range, cut_typical, fusible_ranges
from storage.graph.as_fx import to_module
from storage.graph.effects import writes
from storage.graph.record import Graph, Op, Ref, Sym, cut
from storage.graph.symbols import at
from storage.records import Input, TracedGraph, Variant
from tests.support.graphs import corpus, drawn
from tests.support.in_memory import cut_corpus


def _traced(ops: list[Op], kernels: list[tuple[int, ...]] | None = None, role: str = "input") -> TracedGraph:
    """Over one 4×4 input; the graph returns its last value."""
    records = (Input("x", role, "float32", (4, 4), (4, 1), mean=0.0, std=1.0),)
    graph = Graph(1, tuple(ops), (Ref(len(ops)),))
    return TracedGraph("test:made", 0, graph, records, None if kernels is None else tuple(kernels))


def _call(target: str, *args: object, **kwargs: object) -> Op:
    return Op("function", target, args, kwargs)


def _method(target: str, *args: object) -> Op:
    return Op("method", target, args, {})


RELU, EXP, TANH = "torch.relu", "torch.exp", "torch.tanh"


def _ranges(traced: TracedGraph) -> list[tuple[int, int]]:
    return list(fusible_ranges(prepare(traced)))


def test_a_plateau_ends_at_the_next_kernel() -> None:
    chain = [_call(name, Ref(n)) for n, name in enumerate((RELU, EXP, TANH, RELU, EXP))]
    assert _ranges(_traced(chain, kernels=[(0,), (0,), (1,), (1,), (1,)])) == [(0, 2), (2, 5)]
    assert _ranges(_traced(chain, kernels=[(0,), (0, 1), (1,), (1,), (2,)])) == [(1, 4)]
    assert _ranges(_traced(chain, kernels=[(0,), (1,), (2,), (3,), (4,)])) == []


def test_free_ops_come_along_but_not_at_the_end() -> None:
    ops = [_call(RELU, Ref(0)), _method("view", Ref(1), 16), _call(EXP, Ref(2)), _method("view", Ref(3), 4, 4)]
    assert _ranges(_traced(ops, kernels=[(0,), (), (0,), ()])) == [(0, 3)]


def test_an_op_and_views_of_it_are_nothing_to_fuse() -> None:
    ops = [_call("torch.matmul", Ref(0), Ref(0)), _method("view", Ref(1), 16), _method("view", Ref(2), 4, 4)]
    assert _ranges(_traced(ops, kernels=[(0,), (1,), (1,)])) == []


def test_plateaus_are_at_most_64_ops() -> None:
    ops = [_call(RELU, Ref(n)) for n in range(100)]
    assert _ranges(_traced(ops, kernels=[(0,)] * 100)) == [(0, 64), (64, 100)]


def test_an_op_that_only_a_later_one_ties_to_the_range_does_not_join() -> None:
    """Up to `tanh` the range needs a kernel for each of two unrelated values; `add` brings them together."""
    two = (Input("x", "input", "float32", (4, 4), (4, 1)), Input("y", "input", "float32", (4, 4), (4, 1)))
    ops = (_call(EXP, Ref(0)), _call(TANH, Ref(1)), _call("torch.add", Ref(2), Ref(3)))
    traced = TracedGraph("test:made", 0, Graph(2, ops, (Ref(4),)), two, ((0,),) * 3)
    assert _ranges(traced) == [(1, 3)]
    shared = (_call(EXP, Ref(0)), _call(TANH, Ref(0)), _call("torch.add", Ref(1), Ref(2)))
    assert _ranges(_traced(list(shared), kernels=[(0,)] * 3)) == [(0, 3)]
    shape_only = (_call(EXP, Ref(0)), _call("torch.zeros_like", Ref(1)), _call("torch.add", Ref(1), Ref(2)))
    assert _ranges(_traced(list(shape_only), kernels=[(0,)] * 3)) == [(1, 3)]


def test_ranges_of_real_graphs() -> None:
    attention, convolution, embedding = (prepare(traced) for traced in corpus())
    found = [attention.traced.graph.op_sequence[start:end] for start, end in fusible_ranges(attention)]
    assert found == [["operator.add", "torch.nn.functional.layer_norm"]] * 3
    assert list(fusible_ranges(convolution)) == [(1, 3), (4, 7), (8, 10), (11, 14)]
    assert len(list(fusible_ranges(embedding))) >= 3


def test_subgraphs_compute_alone_what_they_compute_in_their_model() -> None:
    """Every subgraph of the real graphs, on the values that it has there, in-place ops included."""
    result = cut_corpus(corpus())
    assert {v.category for v in result.variants} == {"sole_op", "fusible", "typical"}
    for traced in corpus():
        for variant in (v for v in result.variants if v.sources[0].model == traced.model):
            start, end = variant.sources[0].start, variant.sources[0].end
            before = _values(traced, start)
            part = cut(traced.graph, start, end)
            with torch.no_grad():
                outputs = to_module(variant.graph, "cpu").forward(*(before[n].clone() for n in part.inputs))
            after = _values(traced, end)
            expected = [after[n] for n in part.outputs]
            assert len(outputs) == len(expected)
            assert all(torch.equal(a, b) for a, b in zip(outputs, expected, strict=True)), variant.sources


def _values(traced: TracedGraph, end: int) -> list:
    """All values after ops `[0, end)` ran."""
    numbers = range(traced.graph.inputs + end)
    graph = Graph(traced.graph.inputs, traced.graph.ops[:end], tuple(Ref(n) for n in numbers))
    with torch.no_grad():
        return list(to_module(graph, "cpu").forward(*drawn(traced.inputs)))


def test_every_variant_propagates_and_runs_on_drawn_values() -> None:
    for variant in cut_corpus(corpus()).variants:
        assert outputs_of(variant.graph, propagate(variant.graph, variant.inputs)) == variant.outputs
        with torch.no_grad():
            outputs = to_module(variant.graph, "cpu").forward(*drawn(variant.inputs))
        assert all(torch.isfinite(out).all() for out in outputs if out.is_floating_point()), variant


def test_roles_ranges_kernels_and_sources() -> None:
    variants = cut_corpus(corpus()).variants
    norm = next(v for v in variants if v.graph.op_sequence == ["torch.nn.functional.batch_norm"])
    assert [i.role for i in norm.inputs] == ["input", "buffer", "buffer", "parameter", "parameter"]
    assert norm.inputs[2].low == 0.5
    tables = [v for v in variants if v.graph.op_sequence == ["torch.nn.functional.embedding"]]
    assert sorted(i.high for v in tables for i in v.inputs if i.dtype == "int64") == [1.0, 6.0]
    root = next(v for v in variants if v.graph.op_sequence == ["torch.rsqrt"])
    assert root.inputs[0].low > 0
    pair = next(v for v in variants if v.category == "fusible")
    assert (pair.kernels, pair.occurrences) == (1, 1)
    assert pair.sources[0].model.startswith("test:")


def _dropped(traced: TracedGraph) -> Counter[str]:
    return cut_corpus([traced]).dropped


@pytest.mark.parametrize(
    ("op", "cause"),
    [
        (_call("torch.nn.functional.dropout", Ref(0), 0.5, True), "op: randomness"),
        (_call("torch.rand_like", Ref(0)), "op: randomness"),
        (_method("bernoulli_", Ref(0)), "op: randomness"),
        (_call("torch.amp.autocast_mode._exit_autocast", Ref(0)), "op: context"),
    ],
)
def test_random_and_context_ops_are_left_out(op: Op, cause: str) -> None:
    if "autocast" in op.target:
        enter = _call("torch.amp.autocast_mode._enter_autocast", "cpu", torch.bfloat16, True, None)
        ops = [enter, _call(RELU, Ref(0)), _call(op.target, Ref(1)), _call(RELU, Ref(0))]
        traced = _traced(ops, kernels=[(), (0,), (), (1,)])
        assert _dropped(traced)["op: under autocast"] == 1
    else:
        traced = _traced([_call(RELU, Ref(0)), op, _call(RELU, Ref(1))], kernels=[(0,)] * 3)
    result = cut_corpus([traced])
    assert result.dropped[cause] >= 1
    assert all(v.graph.op_sequence == [RELU] for v in result.variants)


def test_dropout_in_evaluation_is_free() -> None:
    ops = [_call(RELU, Ref(0)), _call("torch.nn.functional.dropout", Ref(1), 0.5, False), _call(EXP, Ref(2))]
    traced = _traced(ops, kernels=[(0,), (), (0,)])
    assert _ranges(traced) == [(0, 3)]
    assert not any(key.startswith("op:") for key in _dropped(traced))


def _sole(traced: TracedGraph, op: int) -> Variant | str:
    return cut_range(prepare(traced), "sole_op", op, op + 1)


def test_changes_that_others_see_are_not_cut() -> None:
    own = _traced([_call(EXP, Ref(0)), _call(RELU, Ref(1)), _method("relu_", Ref(1)), _call(TANH, Ref(3))])
    assert isinstance(_sole(own, 2), Variant)
    read_later = _traced([_call(EXP, Ref(0)), _method("relu_", Ref(1)), _call("operator.add", Ref(1), Ref(2))])
    assert "read outside later" in _sole(read_later, 1)
    through_a_view = _traced(
        [_call(EXP, Ref(0)), _method("view", Ref(1), 16), _method("relu_", Ref(2)), _call(TANH, Ref(1))]
    )
    assert "read outside later" in _sole(through_a_view, 2)
    for role in ("input", "parameter", "buffer"):
        assert "of the model" in _sole(_traced([_method("relu_", Ref(0))], role=role), 0)
    two_names = _traced(
        [_call(EXP, Ref(0)), _method("view", Ref(1), 4, 4), _call("torch.add", Ref(1), Ref(2), out=Ref(1))]
    )
    assert "two names" in _sole(two_names, 2)


def test_a_change_within_the_range_is_its_own_affair() -> None:
    ops = [_call(EXP, Ref(0)), _method("relu_", Ref(1)), _call("operator.add", Ref(1), Ref(2))]
    variant = cut_range(prepare(_traced(ops)), "fusible", 0, 3)
    assert not isinstance(variant, Variant)  # no kernels are known: not fusible
    variant = cut_range(prepare(_traced(ops, kernels=[(0,)] * 3)), "fusible", 0, 3)
    assert isinstance(variant, Variant)
    assert any(writes(op) for op in variant.graph.ops)


def _split() -> list[Op]:
    return [
        _call(EXP, Ref(0)),
        _method("chunk", Ref(1), 2),
        _call("operator.getitem", Ref(2), 0),
        _call("operator.getitem", Ref(2), 1),
        _call(RELU, Ref(3)),
        _call("operator.mul", Ref(5), Ref(4)),
    ]


def test_tuples_do_not_cross_the_border() -> None:
    ready = prepare(_traced(_split(), kernels=[(0,), (), (), (), (0,), (0,)]))
    extended = cut_range(ready, "sole_op", 0, 2)
    assert extended.sources[0].end == 4
    assert len(extended.outputs) == 2
    shrunk = cut_range(ready, "fusible", 2, 6)
    assert (shrunk.sources[0].start, shrunk.sources[0].end) == (4, 6)
    assert cut_range(ready, "typical", 2, 6) == "something other than a tensor crosses the border"


def test_multiple_results_of_one_op() -> None:
    ops = [_call("torch.max", Ref(0), 1), _call("operator.getitem", Ref(1), 0), _call(RELU, Ref(2))]
    variants = cut_corpus([_traced(ops)]).variants
    assert [v.graph.op_sequence for v in variants] == [["torch.max", "operator.getitem"], [RELU]]


def test_a_graph_that_does_not_propagate_is_counted() -> None:
    result = cut_corpus([_traced([_method("view", Ref(0), 5)])])
    assert result.variants == ()
    assert result.dropped == {"graph: shape or argument": 1}


def test_a_graph_that_inductor_cannot_lower_still_has_ops() -> None:
    result = cut_corpus([_traced([_call(RELU, Ref(0))])])
    assert [(v.category, v.kernels) for v in result.variants] == [("sole_op", None)]
    assert result.dropped == {"fusible: graph without kernel counts": 1}


# Sizes with names


def _symbolic() -> TracedGraph:
    """`(x + 1).view(rows, width // 2, 2).exp() @ w`, of which `w` has no named size."""
    ops = (
        _call("operator.add", Ref(0), 1),
        _method("view", Ref(2), Sym("rows"), Sym("width//2"), 2),
        _call(EXP, Ref(3)),
        _call("torch.matmul", Ref(4), Ref(1)),
        _call("torch.tanh", Ref(1)),
    )
    inputs = (
        Input("x", "input", "float32", (3, 8), (8, 1), mean=0.0, std=1.0),
        Input("w", "parameter", "float32", (2, 2), (2, 1), mean=0.0, std=1.0),
    )
    whole, halves = (("rows", "width"), ("width", "1")), (("rows", "width//2", "2"), ("width", "2", "1"))
    symbolic = (whole, (("2", "2"), ("2", "1")), whole, halves, halves, halves, (("2", "2"), ("2", "1")))
    graph = Graph(2, ops, (Ref(5), Ref(6)))
    kernels = ((0,), (0,), (0,), (1,), (2,))
    return TracedGraph("test:made", 0, graph, inputs, kernels, symbols={"rows": 3, "width": 8}, symbolic=symbolic)


def test_subgraphs_keep_the_expressions_that_concern_them() -> None:
    traced = _symbolic()
    found = {tuple(v.graph.op_sequence): v for v in cut_graph(traced, Counter())}
    fused = found["operator.add", ".view", EXP]
    assert fused.category == "fusible"
    assert fused.symbols == {"rows": 3, "width": 8}
    assert fused.graph.ops[1].args[1:] == (Sym("rows"), Sym("width//2"), 2)
    assert fused.inputs[0].shape == (3, 8)
    assert fused.inputs[0].symbolic_shape == ("rows", "width")
    assert fused.inputs[0].symbolic_stride == ("width", "1")
    assert found[(TANH,)].symbols == {}
    assert found[(TANH,)].inputs[0].symbolic_shape is None
    product = found[("torch.matmul",)]
    assert product.symbols == {"rows": 3, "width": 8}
    assert product.inputs[1].symbolic_shape == ("2", "2")


def test_expressions_hold_at_other_sizes() -> None:
    fused = next(v for v in cut_graph(_symbolic(), Counter()) if v.category == "fusible")
    elsewhere = Input("x", "input", "float32", (5, 6), (6, 1))
    propagated = propagate(at(fused.graph, {"rows": 5, "width": 6}), [elsewhere])
    (output,) = outputs_of(fused.graph, propagated)
    assert output.shape == (5, 3, 2)
    assert fused.outputs[0].shape == (3, 4, 2)


def test_an_expression_without_a_value_is_counted() -> None:
    traced = _symbolic()
    broken = TracedGraph("test:made", 0, traced.graph, traced.inputs, symbols={"rows": 3}, symbolic=traced.symbolic)
    dropped: Counter[str] = Counter()
    assert list(cut_graph(broken, dropped)) == []
    assert dropped == {"graph: graph": 1}


def test_barriers_are_no_tokens() -> None:
    ops = [_call(RELU, Ref(0)), _call("torch.rand_like", Ref(1)), _method("view", Ref(1), 16)]
    assert tokens(_traced(ops)) == [RELU, None, ".view"]


def test_a_graph_that_does_not_propagate_has_no_typical_ranges() -> None:
    dropped: Counter[str] = Counter()
    assert list(cut_typical(_traced([_method("view", Ref(0), 5)]), [(0, 1)], dropped)) == []
    assert not dropped  # the first pass counts it


def test_every_op_with_its_arguments_is_cut_or_counted() -> None:
    """Each op of the real graphs: a sole_op subgraph of its own, or one of the causes."""
    for traced in corpus():
        dropped: Counter[str] = Counter()
        cut_ops = [v.sources[0].start for v in cut_graph(traced, dropped) if v.category == "sole_op"]
        assert len(set(cut_ops)) == len(cut_ops)
        counted = sum(n for cause, n in dropped.items() if cause.startswith(("op:", "sole_op:")))
        assert len(cut_ops) + counted == len(traced.graph.ops)

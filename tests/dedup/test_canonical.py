import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dedup.canonical import canonical
from storage.graph.record import Graph, Op, Ref
from tests.support.graphs import corpus, drawn, matrices, reordered, run, runnable, same


@given(runnable(in_place=True), st.integers(0, 3))
@settings(max_examples=150)
def test_the_canonical_form_computes_and_changes_the_same(graph: Graph, seed: int) -> None:
    inputs = matrices(graph.inputs, seed)
    form = canonical(graph)
    outputs, changed = run(graph, inputs)
    canonical_outputs, canonical_changed = run(form.graph, [inputs[n] for n in form.inputs])
    assert same(outputs, canonical_outputs)
    assert same([changed[n] for n in form.inputs], canonical_changed)
    untouched = set(range(graph.inputs)) - set(form.inputs)
    assert all(torch.equal(inputs[n], changed[n]) for n in untouched)


@given(runnable(in_place=True))
def test_the_canonical_form_is_its_own(graph: Graph) -> None:
    form = canonical(graph).graph
    assert canonical(form).graph == form


@given(st.data())
def test_listing_order_does_not_count(data: st.DataObject) -> None:
    graph = data.draw(runnable())
    assert canonical(data.draw(reordered(graph))).graph == canonical(graph).graph


def test_inputs_and_ops_are_followed() -> None:
    ops = (
        Op("function", "torch.relu", (Ref(1),), {}),
        Op("function", "torch.exp", (Ref(0),), {}),
        Op("function", "torch.tanh", (Ref(2),), {}),
        Op("function", "operator.add", (Ref(3), Ref(4)), {}),
    )
    form = canonical(Graph(3, ops, (Ref(6),)))
    assert form.inputs == (1, 0)
    assert form.ops == (0, 1, 3)
    assert form.graph.op_sequence == ["torch.relu", "torch.exp", "operator.add"]


def test_an_op_that_only_changes_an_input_stays() -> None:
    ops = (Op("method", "mul_", (Ref(1), 2), {}), Op("function", "torch.relu", (Ref(0),), {}))
    assert canonical(Graph(2, ops, (Ref(3),))).graph.op_sequence == ["torch.relu", ".mul_"]


def test_changes_of_inputs_that_no_output_leads_to_have_an_order() -> None:
    first, second = Op("method", "relu_", (Ref(0),), {}), Op("method", "tanh_", (Ref(1),), {})
    turned = (Op("method", "tanh_", (Ref(0),), {}), Op("method", "relu_", (Ref(1),), {}))
    forms = [canonical(Graph(3, ops, (Ref(2),))).graph for ops in ((first, second), (second, first), turned)]
    assert forms[0] == forms[1] == forms[2]
    assert canonical(forms[0]).graph == forms[0]


def test_reads_stay_on_their_side_of_a_change() -> None:
    read = Op("function", "torch.exp", (Ref(0),), {})
    change = Op("method", "relu_", (Ref(0),), {})
    add = Op("function", "operator.add", (Ref(1), Ref(2)), {})
    before = canonical(Graph(1, (read, change, add), (Ref(3),))).graph
    add_swapped = Op("function", "operator.add", (Ref(2), Ref(1)), {})
    after = canonical(Graph(1, (change, read, add_swapped), (Ref(3),))).graph
    assert before.op_sequence[:2] == ["torch.exp", ".relu_"]
    assert after.op_sequence[:2] == [".relu_", "torch.exp"]


def test_a_deep_graph_is_no_recursion() -> None:
    ops = tuple(Op("function", "torch.relu", (Ref(n),), {}) for n in range(5000))
    assert len(canonical(Graph(1, ops, (Ref(5000),))).graph.ops) == 5000


def test_real_graphs_compute_the_same() -> None:
    for traced in corpus():
        form = canonical(traced.graph)
        inputs = drawn(traced.inputs)
        (expected,), _ = run(traced.graph, inputs)
        (given_,), _ = run(form.graph, [inputs[n] for n in form.inputs])
        assert torch.equal(expected, given_)

import gc
import json
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dedup.canonical import canonical
from dedup.hashes import family_hash, graph_hash, identify, identify_base, variant_hash
from storage.graph.as_json import from_json, to_json
from storage.graph.record import Graph, Op, Ref, Sym, map_refs
from storage.graph.symbols import at
from storage.records import Input, Variant
from tests.support.graphs import reordered, runnable


def _one(target: str, *args: object, kind: str = "function", **kwargs: object) -> Graph:
    """A graph of one op over two inputs."""
    return Graph(2, (Op(kind, target, args, kwargs),), (Ref(2),))


@given(st.data())
def test_input_order_and_listing_order_do_not_count(data: st.DataObject) -> None:
    graph = data.draw(runnable())
    other = data.draw(reordered(graph))
    assert graph_hash(other) == graph_hash(graph)
    assert family_hash(other) == family_hash(graph)


@given(runnable(in_place=True))
def test_json_does_not_count(graph: Graph) -> None:
    assert graph_hash(from_json(to_json(graph))) == graph_hash(graph)


NUMBERS = [1, True, 1.0, 0, False, 0.0, -0.0, -1, 1 + 0j, math.nan, math.inf]
CONSTANTS = [*NUMBERS, "1", None, (1,), [1], (1.0,), slice(1), ...]


def test_every_constant_counts_for_the_graph_and_none_for_the_family() -> None:
    graphs = [_one("torch.add", Ref(0), Ref(1), constant) for constant in CONSTANTS]
    assert len({graph_hash(graph) for graph in graphs}) == len(CONSTANTS)
    assert len({family_hash(graph) for graph in graphs}) == 1


@given(runnable(), st.data())
def test_wiring_counts_for_both(graph: Graph, data: st.DataObject) -> None:
    extra = Op("function", "operator.sub", (Ref(0), Ref(graph.inputs + len(graph.ops) - 1)), {})
    swapped = replace(extra, args=extra.args[::-1])
    result = (Ref(graph.inputs + len(graph.ops)),)
    one, other = (Graph(graph.inputs, (*graph.ops, op), result) for op in (extra, swapped))
    symmetric = extra.args[0] == extra.args[1] or _mirror(one) == _mirror(other)
    assert (graph_hash(one) == graph_hash(other)) is symmetric


def _mirror(graph: Graph) -> str:
    """Where swapping the operands gives the same graph again, it must hash the same."""
    return to_json(canonical(graph).graph)


def test_wiring_of_real_ops() -> None:
    twice = _one("operator.sub", Ref(0), Ref(0))
    straight = _one("operator.sub", Ref(0), Ref(1))
    assert graph_hash(straight) == graph_hash(_one("operator.sub", Ref(1), Ref(0)))  # only the input order differs
    assert graph_hash(straight) != graph_hash(twice)
    assert family_hash(straight) != family_hash(twice)
    chain = Op("function", "operator.sub", (Ref(2), Ref(1)), {})
    turned = Op("function", "operator.sub", (Ref(1), Ref(2)), {})
    graphs = [Graph(2, (straight.ops[0], op), (Ref(3),)) for op in (chain, turned)]
    assert graph_hash(graphs[0]) != graph_hash(graphs[1])
    assert family_hash(graphs[0]) != family_hash(graphs[1])


def test_which_parameter_is_given_counts_for_the_family() -> None:
    target = "torch.nn.functional.layer_norm"
    weight = Graph(2, (Op("function", target, (Ref(0), (4,), Ref(1), None, 1e-5), {}),), (Ref(2),))
    bias = Graph(2, (Op("function", target, (Ref(0), (4,), None, Ref(1), 1e-5), {}),), (Ref(2),))
    assert family_hash(weight) != family_hash(bias)


SAME_CALL = [
    (_one("torch.cat", [Ref(0), Ref(1)], 1), _one("torch.cat", [Ref(0), Ref(1)], dim=1)),
    (_one("torch.cat", [Ref(0), Ref(1)], 1), _one("torch.cat", dim=1, tensors=[Ref(0), Ref(1)])),
    (_one("torch.add", Ref(0), Ref(1)), _one("torch.add", input=Ref(0), other=Ref(1))),
    (_one("torch.nn.functional.relu", Ref(0), True), _one("torch.nn.functional.relu", Ref(0), inplace=True)),
    (
        _one("torch.nn.functional.softmax", Ref(0), -1),
        _one("torch.nn.functional.softmax", input=Ref(0), dim=-1),
    ),
    (
        _one("torch.nn.functional.layer_norm", Ref(0), (4,), Ref(1)),
        _one("torch.nn.functional.layer_norm", Ref(0), weight=Ref(1), normalized_shape=(4,)),
    ),
    (_one("torch.nn.functional.linear", Ref(0), Ref(1)), _one("torch.nn.functional.linear", Ref(0), weight=Ref(1))),
    (_one("mean", Ref(0), -1, True, kind="method"), _one("mean", Ref(0), keepdim=True, dim=-1, kind="method")),
    (_one("transpose", Ref(0), 0, 1, kind="method"), _one("transpose", Ref(0), dim0=0, dim1=1, kind="method")),
    (_one("torch.special.erf", Ref(0)), _one("torch.special.erf", input=Ref(0))),
    (_one("split", Ref(0), 2, 1, kind="method"), _one("split", Ref(0), split_size=2, dim=1, kind="method")),
]


@pytest.mark.parametrize(("positional", "keyword"), SAME_CALL)
def test_keyword_or_positional_does_not_count(positional: Graph, keyword: Graph) -> None:
    assert graph_hash(positional) == graph_hash(keyword)
    assert family_hash(positional) == family_hash(keyword)


DIFFERENT_CALL = [
    (_one("torch.sum", Ref(0), dim=1), _one("torch.sum", Ref(0), dim=0)),
    (_one("torch.nn.functional.linear", Ref(0), Ref(1)), _one("torch.nn.functional.linear", Ref(0), Ref(1), None)),
    (_one("torch.clamp", Ref(0), min=0), _one("torch.clamp", Ref(0), max=0)),
    (_one("torch.relu", Ref(0)), _one("torch.relu_", Ref(0))),
    (_one("torch.nn.functional.relu", Ref(0)), _one("torch.nn.functional.relu", Ref(0), inplace=True)),
    (_one("operator.add", Ref(0), Ref(1)), _one("operator.iadd", Ref(0), Ref(1))),
    (_one("relu", Ref(0), kind="method"), _one("torch.relu", Ref(0))),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT_CALL)
def test_different_calls_differ(one: Graph, other: Graph) -> None:
    assert graph_hash(one) != graph_hash(other)


def test_reading_before_or_after_a_change_counts() -> None:
    read, change = Op("function", "torch.exp", (Ref(0),), {}), Op("method", "relu_", (Ref(0),), {})
    before = Graph(1, (read, change), (Ref(1), Ref(2)))
    after = Graph(1, (change, read), (Ref(2), Ref(1)))
    assert graph_hash(before) != graph_hash(after)


def test_variant_hash_counts_dtype_shape_and_stride_in_canonical_order() -> None:
    graph = _one("operator.sub", Ref(1), Ref(0))
    a, b = Input("a", "input", "float32", (2, 3), (3, 1)), Input("b", "parameter", "float32", (2, 1), (1, 1))
    base = variant_hash(graph, (a, b))
    swapped = Graph(2, tuple(_renumbered(op) for op in graph.ops), graph.output)
    assert variant_hash(swapped, (b, a)) == base
    assert variant_hash(graph, (b, a)) != base
    for change in ({"dtype": "float16"}, {"shape": (3, 2)}, {"stride": (1, 2)}):
        assert variant_hash(graph, (replace(a, **change), b)) != base
    for change in ({"name": "z"}, {"role": "buffer"}, {"mean": 3.0}, {"low": 0.0}):
        assert variant_hash(graph, (replace(a, **change), b)) == base


def _renumbered(op: Op) -> Op:
    return replace(op, args=map_refs(op.args, lambda ref: Ref(1 - ref.index)))


def test_identify_is_idempotent_and_moves_the_inputs() -> None:
    a, b = Input("a", "input", "float32", (2, 3), (3, 1)), Input("b", "parameter", "float32", (2, 1), (1, 1))
    given_ = Variant("sole_op", _one("operator.sub", Ref(1), Ref(0)), (a, b), ())
    found = identify(given_)
    assert [(i.name, i.role) for i in found.inputs] == [("in_0", "parameter"), ("in_1", "input")]
    assert "in_0 - in_1" in found.code
    assert found.variant_hash == variant_hash(given_.graph, given_.inputs)
    assert found.graph_hash == graph_hash(given_.graph)
    assert found.family_hash == family_hash(given_.graph)
    assert identify(found) == found


def test_known_hashes() -> None:
    """Written down once: these change only with the record's format, never with Python, torch or the process."""
    cat, softmax = SAME_CALL[0][1], SAME_CALL[4][1]
    assert [graph_hash(cat)[:16], family_hash(cat)[:16]] == ["0b00f68c1a491f9a", "ab226b514039ba5d"]
    assert [graph_hash(softmax)[:16], family_hash(softmax)[:16]] == ["17f2cd237de6cc12", "dcf1dbc2cc01f95c"]


def test_hashes_of_real_graphs_stay() -> None:
    """Raw pieces of traced models, hashed once: no version of Python or torch, and no change here, may move them."""
    lines = Path(__file__).with_name("golden_hashes.jsonl").read_text().splitlines()
    assert len(lines) == 40
    for line in lines:
        record = json.loads(line)
        graph = from_json(json.dumps(record["graph"]))
        assert graph_hash(graph) == record["graph_hash"]
        assert family_hash(graph) == record["family_hash"]


def _symbolic(**changes: object) -> Variant:
    """x.view(batch * 2, -1) + y, with x of `batch` rows."""
    view = Op("method", "view", (Ref(0), Sym("batch*2"), -1), {})
    add = Op("function", "operator.add", (Ref(2), Ref(1)), {})
    x = Input("x", "input", "float32", (2, 6), (6, 1), ("batch", "6"), symbolic_stride=("6", "1"))
    y = Input("y", "parameter", "float32", (3,), (1,), ("3",), symbolic_stride=("1",))
    symbols = {"batch": 2, "height": 224}
    return Variant("fusible", Graph(2, (view, add), (Ref(3),)), (x, y), (), symbols=symbols).with_changes(**changes)


def _base_hash(variant: Variant) -> str:
    return identify_base(variant).variant_hash


def test_the_base_hash_counts_what_variants_are_made_of() -> None:
    given_ = _symbolic()
    x, y = given_.inputs
    view, add = given_.graph.ops
    other_sym = replace(view, args=(Ref(0), Sym("2*batch"), -1))
    fixed = replace(view, args=(Ref(0), 4, -1))
    different = [
        _symbolic(graph=Graph(2, (other_sym, add), (Ref(3),))),
        _symbolic(graph=Graph(2, (fixed, add), (Ref(3),))),
        _symbolic(symbols={"batch": 3, "height": 224}),
        _symbolic(inputs=(replace(x, symbolic_shape=("2", "6")), y)),
        _symbolic(inputs=(replace(x, symbolic_stride=("1", "batch")), y)),
        _symbolic(inputs=(replace(x, shape=(2, 12)), y)),
        _symbolic(inputs=(replace(x, dtype="float16"), y)),
    ]
    assert len({_base_hash(variant) for variant in [given_, *different]}) == len(different) + 1
    swapped = Graph(2, (replace(view, args=(Ref(1), *view.args[1:])), replace(add, args=(Ref(2), Ref(0)))), (Ref(3),))
    same = [
        _symbolic(symbols={"batch": 2, "width": 7}),
        _symbolic(inputs=(replace(x, name="a", role="buffer", mean=3.0), y)),
        _symbolic(graph=swapped, inputs=(y, x)),
    ]
    assert {_base_hash(variant) for variant in same} == {_base_hash(given_)}


def test_the_base_form_alters_no_variant() -> None:
    given_ = _symbolic()
    form = identify_base(given_)
    assert form.variant_hash == _base_hash(form)
    assert identify_base(form) == form
    put = [v.with_changes(graph=at(v.graph, v.symbols)) for v in (given_, form)]
    assert identify(put[0]) == identify(put[1].with_changes(variant_hash=""))


@pytest.mark.parametrize("target", ["torch.relu", "torch.relu_"])
def test_time_is_linear_in_the_graph(target: str) -> None:
    def seconds(count: int) -> float:
        ops = [Op("function", target, (Ref(n),), {}) for n in range(count)]
        ops.append(Op("function", "torch.cat", ([Ref(n + 1) for n in range(count)], 0), {}))
        graph = Graph(1, tuple(ops), (Ref(count + 1),))
        times = []
        for _ in range(3):
            start = time.process_time()
            canonical(graph)
            times.append(time.process_time() - start)
        return min(times)

    gc.disable()  # its passes over everything else that is alive are not what is measured
    try:
        assert seconds(16_000) < 9 * seconds(4_000), "four times the ops take four times as long, not sixteen"
    finally:
        gc.enable()

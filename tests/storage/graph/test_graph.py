import ast
import json
import os
import pickle
import pickletools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.errors import PassNetError
from storage.graph.as_fx import from_fx, to_fx, to_module
from storage.graph.as_json import from_json, to_json
from storage.graph.record import RUN_DEVICE, Graph, GraphError, Op, Ref, cut, last_uses
from tests.support.graphs import corpus, matrices, records, run, runnable, same


@given(records())
@settings(max_examples=60)
def test_json_round_trip_keeps_every_constant(graph: Graph) -> None:
    again = from_json(to_json(graph))
    assert to_json(again) == to_json(graph)
    assert repr(again) == repr(graph)  # equality would call 1 and True the same, and NaN different


@given(runnable(in_place=True))
def test_fx_round_trip(graph: Graph) -> None:
    assert from_fx(to_fx(graph, "cpu")) == graph


def test_real_graphs_round_trip() -> None:
    for traced in corpus():
        assert from_json(to_json(traced.graph)) == traced.graph
        assert from_fx(to_fx(traced.graph, "cpu")) == traced.graph


@given(runnable(), st.data())
def test_a_cut_computes_what_the_graph_computes(graph: Graph, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(graph.ops) - 1))
    end = data.draw(st.integers(start + 1, len(graph.ops)))
    every = Graph(graph.inputs, graph.ops, tuple(Ref(n) for n in range(graph.inputs + len(graph.ops))))
    values, _ = run(every, matrices(graph.inputs))
    part = cut(graph, start, end)
    assert part == cut(graph, start, end, last_uses(graph))
    outputs, _ = run(part.graph, [values[n] for n in part.inputs])
    assert same(outputs, [values[n] for n in part.outputs])


def test_device_constants_are_the_device_of_the_run() -> None:
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    y = graph.call_method("to", (x, "meta"))
    graph.output(graph.call_function(torch.zeros, (2,), {"device": torch.device("cuda:3")}))
    record = from_fx(graph)
    assert record.ops[0].args == (Ref(0), RUN_DEVICE)
    assert record.ops[1].kwargs == {"device": RUN_DEVICE}
    assert y.name == "to"


def _record(ops: list, inputs: object = 1, output: object = None) -> str:
    return json.dumps({"format": 1, "inputs": inputs, "ops": ops, "output": output or {"%": 0}})


def _call(target: str = "torch.relu", args: object = None, kwargs: object = None, kind: str = "function") -> list:
    return [kind, target, args if args is not None else {"tuple": [{"%": 0}]}, kwargs if kwargs is not None else {}]


_X = {"%": 0}
HOSTILE = {
    "keyword that is code": _record([_call(kwargs={"x=__import__('os').system('touch hit'), y": 1})]),
    "keyword of Python": _record([_call(kwargs={"lambda": 1})]),
    "target that is code": _record([_call("torch.relu(__import__('os').system('touch hit'))")]),
    "method that is code": _record([_call("relu() or exit", kind="method")]),
    "attribute that is code": _record([_call("builtins.getattr", {"tuple": [_X, "T or exit()"]})]),
    "attribute outside the allowlist": _record([_call("builtins.getattr", {"tuple": [_X, "__class__"]})]),
    "attribute that is a list": _record([_call("builtins.getattr", {"tuple": [_X, []]})]),
    "attribute with a default": _record([_call("builtins.getattr", {"tuple": [_X, "T", 1]})]),
    "method of a constant": _record([_call("format", {"tuple": ["{0.__class__}", _X]}, kind="method")]),
    "method of nothing": _record([_call("relu", {"tuple": []}, kind="method")]),
    "operator with one operand": _record([_call("operator.add", {"tuple": [_X]})]),
    "assignment to a constant": _record([_call("operator.iadd", {"tuple": [5, _X]})]),
    "forward reference": _record([_call(args={"tuple": [{"%": 1}]})]),
    "negative reference": _record([_call(args={"tuple": [{"%": -1}]})]),
    "output that does not exist": _record([], output={"%": 7}),
    "inputs without end": _record([], inputs=10**12),
    "inputs that are true": _record([], inputs=True),
    "deep nesting": _record([_call(args={"tuple": [eval("[" * 90 + "]" * 90)]})]),
    "very deep nesting": '{"format":1,"inputs":1,"ops":[["function","torch.relu",' + "[" * 10**5,
    "module attribute as a dtype": _record([_call(args={"tuple": [{"dtype": "_inductor"}]})]),
    "unhashable dtype": _record([_call(args={"tuple": [{"dtype": []}]})]),
    "unknown tag": _record([_call(args={"tuple": [{"py/object": "os.system"}]})]),
    "two tags": _record([_call(args={"tuple": [{"%": 0, "tuple": []}]})]),
    "arguments without tuple": _record([_call(args=[_X])]),
    "keywords in a list": _record([_call(kwargs=[["a", 1]])]),
    "unknown kind": _record([_call(kind="module")]),
    "short op": _record([["function"]]),
    "no object": "[]",
    "no JSON": "import os",
    "other format": '{"format": 2}',
    "format that is true": '{"format": true, "inputs": 0, "ops": [], "output": null}',
    "nothing": "",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_records_are_refused(name: str, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(GraphError):
        from_json(HOSTILE[name])
    assert not os.listdir(tmp_path)


def test_a_malformed_graph_made_in_memory_is_not_rebuilt() -> None:
    graph = Graph(1, (Op("function", "torch.relu", (Ref(0),), {"x=exit(), y": 1}),), Ref(1))
    with pytest.raises(GraphError, match="not a name"):
        to_module(graph, "cpu")


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["%", "tuple", "slice", "dict", "float", "complex", "dtype", "device", "a"]),
            inner,
            max_size=2,
        ),
    ),
    max_leaves=8,
)


@given(
    st.lists(st.tuples(st.sampled_from(["function", "method", "x"]), st.text(max_size=12), json_values, json_values))
)
def test_random_records_are_read_or_refused(ops: list) -> None:
    text = json.dumps({"format": 1, "inputs": 2, "ops": ops, "output": {"%": 0}})
    try:
        graph = from_json(text)
    except GraphError:
        return
    try:
        source = to_module(graph, "cpu").code
    except PassNetError:
        return
    ast.parse(source)


def test_reading_a_record_imports_nothing(torch_forks) -> None:
    record = _record([_call(args={"tuple": [{"dtype": "_inductor"}]})])
    done = torch_forks(
        "import sys, torch, storage.graph.as_json as g\n"
        "assert 'torch._inductor' not in sys.modules\n"
        "before = set(sys.modules)\n"
        f"try: g.from_json({record!r})\n"
        "except g.GraphError: pass\n"
        "assert set(sys.modules) == before, set(sys.modules) - before"
    )
    assert done.returncode == 0, done.stderr


def test_a_memory_format_is_pickled_as_what_torch_calls_it():
    """By itself it names the first module that holds it, which may be one that the reader has not."""
    named = pickle.dumps(torch.channels_last)
    assert pickle.loads(named) is torch.channels_last
    modules = {text for _, text, _ in pickletools.genops(named) if isinstance(text, str)}
    assert modules == {"storage.graph.record", "_memory_format", "channels_last"}

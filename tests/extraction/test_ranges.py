import math

import pytest

from extraction.propagate import propagate
from extraction.ranges import ANY, UNIT, Interval, drawn_from, intervals, required
from extraction.values import TensorValue
from storage.graph import Graph, Op, Ref
from storage.records import Input

FLOATS = Input("x", "input", "float32", (4, 6), (6, 1), mean=0.0, std=1.0)
IDS = Input("ids", "input", "int64", (4,), (1,), low=0.0, high=9.0)


def _known(*ops: Op, inputs: tuple[Input, ...] = (FLOATS,)) -> Interval:
    graph = Graph(len(inputs), ops, (Ref(len(inputs) + len(ops) - 1),))
    return intervals(graph, inputs, propagate(graph, inputs))[-1]


def _call(target: str, *args: object, **kwargs: object) -> Op:
    return Op("function", target, args, kwargs)


@pytest.mark.parametrize(
    ("ops", "interval"),
    [
        ([_call("torch.exp", Ref(0))], Interval(0.0, math.exp(80.0))),
        ([_call("torch.nn.functional.softmax", Ref(0), -1)], UNIT),
        ([_call("torch.nn.functional.softmax", Ref(0), -1), _call("operator.mul", Ref(1), -2)], Interval(-2.0, 0.0)),
        ([_call("operator.mul", Ref(0), Ref(0))], Interval(0.0, math.inf)),
        ([Op("method", "pow", (Ref(0), 2), {}), Op("method", "mean", (Ref(1), -1), {})], Interval(0.0, math.inf)),
        ([_call("torch.clamp", Ref(0), -1, 3)], Interval(-1.0, 3.0)),
        ([_call("torch.clamp", Ref(0), min=1e-6)], Interval(1e-6, math.inf)),
        ([_call("torch.arange", 7)], Interval(0.0, 6.0)),
        ([_call("torch.arange", 7), _call("operator.add", Ref(1), 2)], Interval(2.0, 8.0)),
        ([_call("torch.arange", 7), _call("operator.sub", 1, Ref(1))], Interval(-5.0, 1.0)),
        ([_call("operator.lt", Ref(0), 0.0)], UNIT),
        ([_call("operator.lt", Ref(0), 0.0), Op("method", "cumsum", (Ref(1), 1), {})], Interval(0.0, 6.0)),
        ([_call("torch.argmax", Ref(0), 1)], Interval(0.0, 5.0)),
        ([_call("torch.max", Ref(0), 1), _call("operator.getitem", Ref(1), 1)], Interval(0.0, 5.0)),
        ([_call("torch.sigmoid", Ref(0)), Op("method", "view", (Ref(1), 24), {})], UNIT),
        ([_call("operator.sub", Ref(0), Ref(0))], ANY),
        ([_call("torch.full_like", Ref(0), float("-inf")), _call("operator.add", Ref(1), Ref(0))], ANY),
    ],
)
def test_what_ops_say_about_their_results(ops: list[Op], interval: Interval) -> None:
    found = _known(*ops)
    assert found == pytest.approx(interval)


def _needed(op: Op, inputs: tuple[Input, ...], *more: Op) -> Interval:
    graph = Graph(len(inputs), (op, *more), (Ref(len(inputs)),))
    return required(graph, propagate(graph, inputs).values)[0]


def test_what_readers_need() -> None:
    positive = Interval(1e-2, math.inf)
    assert _needed(_call("torch.rsqrt", Ref(0)), (FLOATS,)) == positive
    assert _needed(Op("method", "pow", (Ref(0), 0.5), {}), (FLOATS,)) == positive
    assert _needed(Op("method", "pow", (Ref(0), 2), {}), (FLOATS,)) == ANY
    assert _needed(_call("torch.nn.functional.embedding", Ref(0), Ref(1)), (IDS, FLOATS)) == Interval(0.0, 3.0)
    assert _needed(_call("operator.getitem", Ref(1), Ref(0)), (IDS, FLOATS)) == Interval(0.0, 3.0)
    by_column = _call("operator.getitem", Ref(1), (Ellipsis, Ref(0)))
    assert _needed(by_column, (IDS, FLOATS)) == Interval(0.0, 5.0)
    assert _needed(_call("torch.index_select", Ref(1), 1, Ref(0)), (IDS, FLOATS)) == Interval(0.0, 5.0)
    through = Op("method", "view", (Ref(0), 2, 2), {})
    embedding = _call("torch.nn.functional.embedding", Ref(2), Ref(1))
    assert _needed(through, (IDS, FLOATS), embedding) == Interval(0.0, 3.0)


def test_hints() -> None:
    floats = TensorValue("float32", (2,), (1,), 0)
    ints = TensorValue("int64", (2,), (1,), 0)
    assert drawn_from(floats, ANY, ANY) == {"low": None, "high": None, "mean": 0.0, "std": 1.0}
    assert drawn_from(floats, Interval(0.0, math.inf), ANY) == {"low": 0.0, "high": 2.0, "mean": None, "std": None}
    assert drawn_from(floats, Interval(-3.4e38, 0.0), ANY)["low"] == -1e4
    assert drawn_from(floats, UNIT, Interval(0.5, 9.0)) == {"low": 0.5, "high": 1.0, "mean": None, "std": None}
    assert drawn_from(floats, Interval(-2.0, -1.0), Interval(1.0, 3.0))["low"] == 1.0
    assert drawn_from(ints, ANY, ANY) == {"low": 0.0, "high": 1.0, "mean": None, "std": None}
    assert drawn_from(ints, ANY, Interval(0.0, 6.0))["high"] == 6.0
    assert drawn_from(TensorValue("bool", (2,), (1,), 0), Interval(0.0, 9.0), ANY)["high"] == 1.0

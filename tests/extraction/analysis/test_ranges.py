import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from extraction.analysis.index_overrun import overruns
from extraction.analysis.intervals import intervals
from extraction.analysis.propagate import propagate
from extraction.analysis.value_ranges import ANY, UNIT, Interval, drawn_from, required
from extraction.analysis.values import TensorValue
from storage.graph.as_fx import to_module
from storage.graph.record import Graph, Op, Ref
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


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("relu", {}), ("exp", {}), ("neg", {}), ("clamp", {"min": 0.5}), ("sum", {}), ("cumsum", {"dim": 0}),
        ("pow", {"exponent": 2}), ("argmax", {}), ("softmax", {"dim": 0}), ("mean", {}),
    ],
)  # fmt: skip
def test_an_operand_that_is_given_by_name_is_as_one_that_is_not(name: str, rest: dict) -> None:
    by_name = _call(f"torch.{name}", input=Ref(0), **rest)
    assert _known(by_name) == _known(_call(f"torch.{name}", Ref(0), **rest))


def test_indices_beside_values_are_told_where_the_operand_is_given_by_name() -> None:
    found = _known(_call("torch.max", input=Ref(0), dim=1), _call("operator.getitem", Ref(1), 1))
    assert found == Interval(0.0, 5.0)


def test_needs_of_calls_by_name() -> None:
    def needs(*ops: Op, inputs: tuple[Input, ...]) -> list[Interval]:
        graph = Graph(len(inputs), ops, (Ref(len(inputs) + len(ops) - 1),))
        return required(graph, propagate(graph, inputs).values)

    table = (FLOATS, IDS)
    by_name = _call("torch.ops.aten.index.Tensor", Ref(0), indices=[Ref(1)])
    assert needs(by_name, inputs=table)[1] == Interval(0.0, 3.0)
    assert needs(_call("torch.log", input=Ref(0)), inputs=(FLOATS,)) == needs(
        _call("torch.log", Ref(0)), inputs=(FLOATS,)
    )
    chosen = _call("torch.where", condition=Ref(0), input=Ref(0), other=Ref(0))
    graph = Graph(1, (chosen,), (Ref(1),))
    assert required(graph, [TensorValue("bool", (2,), (1,), 0), TensorValue("bool", (2,), (1,), 1)])[0] == ANY


@pytest.mark.parametrize("exponent", [math.inf, -math.inf, math.nan])
def test_a_power_without_an_end_is_no_error(exponent: float) -> None:
    assert _known(_call("torch.pow", Ref(0), exponent)) is not None
    graph = Graph(1, (_call("torch.pow", Ref(0), exponent),), (Ref(1),))
    assert len(required(graph, propagate(graph, (FLOATS,)).values)) == 2


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


def test_what_divisors_summands_and_choices_need() -> None:
    embedding = _call("torch.nn.functional.embedding", Ref(2), Ref(1))
    assert _needed(_call("operator.truediv", 1.0, Ref(0)), (FLOATS,)) == Interval(0.1, math.inf)
    assert _needed(_call("operator.floordiv", 7, Ref(0)), (IDS,)) == Interval(1.0, math.inf)
    for op, low, high in (
        (_call("operator.add", Ref(0), 2), -2.0, 1.0),
        (_call("operator.add", 2, Ref(0)), -2.0, 1.0),
        (_call("operator.sub", Ref(0), 1), 1.0, 4.0),
        (_call("operator.mul", Ref(0), 2), 0.0, 1.5),
        (_call("operator.add", Ref(0), Ref(0)), 0.0, 1.5),
        (_call("torch.where", True, Ref(0), 1), 0.0, 3.0),
        (_call("torch.clamp", Ref(0), 0, 100), 0.0, 3.0),
        (_call("operator.getitem", Ref(0), slice(1, 3)), 0.0, 3.0),
    ):
        assert _needed_by(op, embedding) == Interval(low, high)


def _needed_by(op: Op, reader: Op) -> Interval:
    graph = Graph(2, (op, reader), (Ref(3),))
    infos = [TensorValue("int64", (4,), (1,), 0), TensorValue("float32", (4, 6), (6, 1), 1)]
    return required(graph, [*infos, infos[0], infos[1]])[0]


@given(st.integers(1, 50), st.integers(0, 5), st.sampled_from(["add", "mul", "shift", "scale"]))
def test_needs_suffice(size: int, constant: int, how: str) -> None:
    """Indices at both ends of what is needed of them stay inside the table."""
    ops = {
        "add": _call("operator.add", Ref(0), Ref(0)),
        "mul": _call("operator.mul", Ref(0), Ref(0)),
        "shift": _call("operator.add", Ref(0), constant),
        "scale": _call("operator.mul", Ref(0), constant + 1),
    }
    inputs = (IDS, Input("w", "parameter", "float32", (size + constant, 2), (2, 1)))
    graph = Graph(2, (ops[how], _call("torch.nn.functional.embedding", Ref(2), Ref(1))), (Ref(3),))
    needed = required(graph, propagate(graph, inputs).values)[0]
    hints = drawn_from(TensorValue("int64", (4,), (1,), 0), Interval(0.0, math.inf), needed)
    for end in (hints["low"], hints["high"]):
        ids = torch.full((4,), int(end))
        to_module(graph, "cpu").forward(ids, torch.zeros(size + constant, 2))


@given(st.integers(1, 50), st.sampled_from(["operator.sub", "torch.ops.aten.sub.Tensor"]))
def test_differences_of_indices_are_indices(size: int, name: str) -> None:
    """As where a box's left edge is taken off its right one and the width looked up."""
    inputs = (IDS, IDS, Input("w", "parameter", "float32", (size, 2), (2, 1)))
    graph = Graph(3, (_call(name, Ref(0), Ref(1)), _call("torch.nn.functional.embedding", Ref(3), Ref(2))), (Ref(4),))
    needs = required(graph, propagate(graph, inputs).values)
    left, right = (drawn_from(TensorValue("int64", (4,), (1,), 0), Interval(0.0, math.inf), need) for need in needs[:2])
    for end, other in itertools.product(("low", "high"), repeat=2):
        ids = (torch.full((4,), int(hints[at])) for hints, at in ((left, end), (right, other)))
        (rows,) = to_module(graph, "cpu").forward(*ids, torch.zeros(size, 2))
        assert rows.shape == (4, 2)


def test_subscripts_and_places_of_aten_need_what_is_inside() -> None:
    index = _call("torch.ops.aten.index.Tensor", Ref(1), [None, Ref(0)])
    assert _needed(index, (IDS, FLOATS)) == Interval(0.0, 5.0)
    table_first = _call("torch.ops.aten.embedding.default", Ref(1), Ref(0))
    assert _needed(table_first, (IDS, FLOATS)) == Interval(0.0, 3.0)
    backward = _call("torch.ops.aten.embedding_dense_backward.default", Ref(1), Ref(0), 11, -1, False)
    assert _needed(backward, (IDS, FLOATS)) == Interval(0.0, 10.0)
    pooled = _call("torch.ops.aten.max_pool2d_with_indices.default", Ref(0), [2, 2])
    image = Input("x", "input", "float32", (1, 2, 6, 8), (96, 48, 8, 1), low=-1.0, high=2.0)
    assert _known(pooled, _call("operator.getitem", Ref(1), 0), inputs=(image,)) == Interval(-1.0, 2.0)
    assert _known(pooled, _call("operator.getitem", Ref(1), 1), inputs=(image,)) == Interval(0.0, 47.0)


def test_a_tiny_divisor_says_nothing_of_the_quotient() -> None:
    epsilon = _call("torch.clamp", Ref(0), min=1e-6)
    assert _known(epsilon, _call("operator.truediv", 1.0, Ref(1))) == Interval(0.0, math.inf)


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


def _positions(sequence: int, rows: int, start: int = 2) -> tuple[Graph, tuple[Input, ...]]:
    """A table of `rows` positions, read at `sequence` of them from `start` on."""
    table = Input("w", "parameter", "float32", (rows, 4), (4, 1))
    ops = (
        _call("torch.arange", 0, sequence, dtype=torch.int64),
        Op("method", "expand", (Ref(1), 1, -1), {}),
        _call("operator.add", Ref(2), start),
        _call("torch.nn.functional.embedding", Ref(3), Ref(0), None, None, 2.0, False, False),
    )
    return Graph(1, ops, (Ref(4),)), (table,)


@pytest.mark.parametrize(
    ("sequence", "rows", "beyond"), [(8, 10, False), (9, 10, True), (1, 3, False), (2048, 1026, True)]
)
def test_positions_beyond_their_table_are_found_and_no_others(sequence, rows, beyond):
    graph, inputs = _positions(sequence, rows)
    assert overruns(graph, inputs, propagate(graph, inputs)) is beyond
    runs = to_module(graph, "cpu")
    if beyond:
        with pytest.raises(IndexError):
            runs(torch.zeros(rows, 4))
    else:
        runs(torch.zeros(rows, 4))


def test_what_only_may_reach_beyond_a_table_is_left():
    _, inputs = _positions(9, 10)
    ids = Input("ids", "input", "int64", (9,), (1,), low=0.0, high=9.0)
    given = Graph(2, (_call("torch.nn.functional.embedding", Ref(1), Ref(0)),), (Ref(2),))
    assert not overruns(given, (*inputs, ids), propagate(given, (*inputs, ids)))
    stepped = Graph(
        1, (_call("torch.arange", 0, 11, 5), _call("torch.nn.functional.embedding", Ref(1), Ref(0))), (Ref(2),)
    )
    assert not overruns(stepped, inputs, propagate(stepped, inputs))

import pytest
import torch
from hypothesis import given

from extraction.analysis.dtype_rules import check_dtypes
from extraction.analysis.propagate import Invalid, Propagated, outputs_of, propagate
from extraction.analysis.values import OtherValue, TensorValue
from storage.graph.as_fx import to_module
from storage.graph.record import Graph, Op, Ref
from storage.records import Input, Output, dtype_name
from tests.support.graphs import SIDE, corpus, drawn, matrices, run, runnable


def _input(*shape: int, dtype: str = "float32") -> Input:
    return Input("x", "input", dtype, shape, torch.empty(shape).stride())


def _propagated(graph: Graph, *inputs: Input) -> Propagated:
    result = propagate(graph, inputs)
    assert isinstance(result, Propagated), result
    return result


@given(runnable(in_place=True))
def test_it_says_what_running_gives(graph: Graph) -> None:
    inputs = [_input(SIDE, SIDE, dtype="float64")] * graph.inputs
    result = _propagated(graph, *inputs)
    outputs, changed = run(graph, matrices(graph.inputs))
    said = outputs_of(graph, result)
    assert said is not None
    assert [(o.dtype, o.shape) for o in said] == [(dtype_name(o.dtype), tuple(o.shape)) for o in outputs]
    written = {storage for storages in result.mutated for storage in storages}
    for value, before, after in zip(result.values, matrices(graph.inputs), changed, strict=False):
        assert torch.equal(before, after) or value.storage in written


def test_real_graphs() -> None:
    for traced in corpus():
        said = outputs_of(traced.graph, _propagated(traced.graph, *traced.inputs))
        (output,) = to_module(traced.graph, "cpu").forward(*drawn(traced.inputs))
        assert said == (Output(dtype_name(output.dtype), tuple(output.shape), output.stride()),)


def test_values_that_are_not_tensors() -> None:
    ops = (
        Op("method", "unbind", (Ref(0), 0), {}),
        Op("function", "operator.getitem", (Ref(1), 1), {}),
        Op("method", "size", (Ref(0), 0), {}),
        Op("function", "operator.setitem", (Ref(0), 0, 1.0), {}),
    )
    result = _propagated(Graph(1, ops, (Ref(2),)), _input(2, 3))
    whole, parts, part, size, nothing = result.values
    assert parts == OtherValue("tuple", frozenset((whole.storage,)))
    assert part == TensorValue("float32", (3,), (1,), whole.storage)
    assert (size.kind, nothing.kind) == ("int", "NoneType")
    assert [bool(changed) for changed in result.mutated] == [False, False, False, True]
    assert outputs_of(Graph(1, ops, (Ref(1),)), result) is None


def test_views_share_storage_and_copies_do_not() -> None:
    ops = (
        Op("method", "view", (Ref(0), 6), {}),
        Op("method", "clone", (Ref(0),), {}),
        Op("function", "torch.nn.functional.dropout", (Ref(0), 0.5, False), {}),
        Op("function", "builtins.getattr", (Ref(0), "data"), {}),
        Op("method", "add_", (Ref(4), 1), {}),
    )
    result = _propagated(Graph(1, ops, (Ref(5),)), _input(2, 3))
    source, view, clone, identity, data, changed = (value.storage for value in result.values)
    assert source == view == identity == data == changed != clone
    assert result.mutated[-1] == {source}


def test_running_statistics_are_changes() -> None:
    for training in (True, False):
        op = Op("function", "torch.nn.functional.batch_norm", (Ref(0), Ref(1), Ref(2), None, None, training), {})
        result = _propagated(Graph(3, (op,), (Ref(3),)), _input(2, 4, 3), _input(4), _input(4))
        assert bool(result.mutated[0]) is training


@pytest.mark.parametrize(
    ("op", "cause"),
    [
        (Op("function", "torch.matmul", (Ref(0), Ref(0)), {}), "shape or argument"),
        (Op("function", "torch.no_such_function", (Ref(0),), {}), "target"),
        (Op("method", "data_ptr", (Ref(0),), {}), "target"),
        (Op("function", "torch.nonzero", (Ref(0),), {}), "data dependent"),
        (Op("method", "item", (Ref(0),), {}), "data dependent"),
        (Op("function", "torch.nn.functional.linear", (Ref(0), Ref(1)), {}), "dtype"),
        (Op("method", "view", (Ref(0), 7), {}), "shape or argument"),
        (Op("function", "operator.pow", (10, 10**9), {}), "shape or argument"),  # it would take hours
        (Op("function", "operator.lshift", (1, 10**12), {}), "shape or argument"),
        (Op("function", "operator.mul", ((1, 2), 10**11), {}), "shape or argument"),
        (Op("function", "operator.mod", ("%1000000000000d", 1), {}), "shape or argument"),
        (Op("function", "math.factorial", (10**9,), {}), "shape or argument"),
    ],
)
def test_causes(op: Op, cause: str) -> None:
    inputs = (_input(2, 3) if op.target != "item" else _input(1), _input(4, 3, dtype="float16"))
    relu = Op("function", "torch.relu", (Ref(0),), {})
    shifted = Op(op.kind, op.target, op.args, op.kwargs)
    result = propagate(Graph(2, (relu, shifted), (Ref(2),)), inputs)
    assert isinstance(result, Invalid)
    assert (result.cause, result.op) == (cause, 1)


def test_an_autocast_region_is_left_again() -> None:
    enter = Op("function", "torch.amp.autocast_mode._enter_autocast", ("cpu", torch.bfloat16, True, None), {})
    product = Op("function", "torch.matmul", (Ref(0), Ref(0)), {})
    result = _propagated(Graph(1, (enter, product), (Ref(2),)), _input(2, 2))
    assert result.values[-1].dtype == "bfloat16"
    assert not torch.is_autocast_enabled("cpu")


_CALLS = {
    "linear": ("torch.nn.functional.linear", ((2, 4), (3, 4))),
    "linear with bias": ("torch.nn.functional.linear", ((2, 4), (3, 4), (3,))),
    "matmul": ("torch.matmul", ((2, 4), (4, 3))),
    "operator": ("operator.matmul", ((2, 4), (4, 3))),
    "addmm": ("torch.addmm", ((3,), (2, 4), (4, 3))),
    "mv": ("torch.mv", ((2, 4), (4,))),
    "bmm": ("torch.bmm", ((2, 2, 4), (2, 4, 3))),
    "conv2d": ("torch.nn.functional.conv2d", ((1, 2, 8, 8), (2, 2, 3, 3), (2,))),
    "layer_norm": ("torch.nn.functional.layer_norm", ((2, 4), None, (4,), (4,))),
    "group_norm": ("torch.nn.functional.group_norm", ((2, 4, 3), None, (4,), (4,))),
    "batch_norm": ("torch.nn.functional.batch_norm", ((2, 4, 3), (4,), (4,), (4,), (4,))),
    "attention": ("torch.nn.functional.scaled_dot_product_attention", ((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8))),
    "add": ("operator.add", ((2, 4), (2, 4))),
    "maximum": ("torch.maximum", ((2,), (2,))),
    "grid_sample": ("torch.nn.functional.grid_sample", ((1, 2, 4, 4), (1, 4, 4, 2))),
    "lerp": ("torch.lerp", ((4,), (4,), (4,))),
    "prelu": ("torch.prelu", ((2, 4), (1,))),
    "rms_norm": ("torch.nn.functional.rms_norm", ((2, 4), None, (4,))),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", _CALLS)
def test_mixed_dtypes_are_valid_where_eager_takes_them(name: str) -> None:
    """All ways to give the operands float16 or float32, against really running the op."""
    target, shapes = _CALLS[name]
    tensors = [shape for shape in shapes if shape is not None]
    constant = {"torch.nn.functional.group_norm": 2}.get(target, (4,))
    for pattern in range(2 ** len(tensors)):
        dtypes = ["float16" if pattern >> n & 1 else "float32" for n in range(len(tensors))]
        references = iter(range(len(tensors)))
        args = tuple(constant if shape is None else Ref(next(references)) for shape in shapes)
        graph = Graph(len(tensors), (Op("function", target, args, {}),), (Ref(len(tensors)),))
        inputs = [_input(*shape, dtype=dtype) for shape, dtype in zip(tensors, dtypes, strict=True)]
        real = [torch.ones(shape, dtype=getattr(torch, dtype)) for shape, dtype in zip(tensors, dtypes, strict=True)]
        try:
            with torch.no_grad():
                to_module(graph, "cpu").forward(*real)
            runs = True
        except RuntimeError:
            runs = False
        assert isinstance(propagate(graph, inputs), Propagated) is runs, dtypes


def test_dtype_rules_leave_integers_alone() -> None:
    infos = (TensorValue("float16", (3, 3), (3, 1), 0), TensorValue("int64", (1,), (1,), 1))
    check_dtypes(Op("function", "torch.nn.functional.embedding", (Ref(1), Ref(0)), {}), infos)


@pytest.mark.parametrize(
    "impossible",
    [
        Input("x", "input", "float32", (0, 2**100), (2**100, 1)),
        Input("x", "input", "qint8", (2,), (1,)),
    ],
    ids=["sizes", "dtype"],
)
def test_an_input_that_cannot_be_is_an_answer(impossible: Input) -> None:
    found = propagate(Graph(1, (Op("function", "torch.relu", (Ref(0),), {}),), (Ref(1),)), (impossible,))
    assert isinstance(found, Invalid) and found.cause == "input"


def test_a_rule_knows_an_operand_that_is_given_by_name() -> None:
    x, rows = Input("x", "input", "float32", (4, 6), (6, 1)), Input("rows", "input", "int64", (4,), (1,))
    added = {"input": Ref(0), "dim": 0, "index": Ref(1), "source": Ref(0)}
    found = propagate(Graph(2, (Op("function", "torch.index_add", (), added),), (Ref(2),)), (x, rows))
    assert isinstance(found, Propagated)

"""Backward graphs: what they compute is what autograd computes, and they are subgraphs like any other."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest
import torch

from dedup.hashes import identify
from extraction.analysis.prepared import prepare
from extraction.analysis.propagate import outputs_of, propagate
from extraction.cutting.backward import backward, backward_all, may_share
from extraction.cutting.cut import fusible_ranges
from extraction.cutting.gradients import split
from extraction.kernels.lowering import kernels_by_op
from extraction.varying.vary import vary
from passbench.inputs.draw import make_inputs
from storage.graph.as_fx import from_fx, to_module
from storage.graph.effects import base_name
from storage.graph.record import Graph, Op, Ref
from storage.records import Input, TracedGraph, Variant, dtype_name
from storage.schema import SUBGRAPHS as ROWS
from tests.support.graphs import corpus
from tests.support.in_memory import cut_corpus, unique, unique_corpus

LINES = Input("x", "input", "float64", (2, 5, 8), (40, 8, 1), mean=0.0, std=1.0)
IMAGES = Input("x", "input", "float64", (2, 4, 6, 6), (144, 36, 6, 1), mean=0.0, std=1.0)


def _vector(name: str, size: int, role: str = "parameter", **drawn: float) -> Input:
    return Input(name, role, "float64", (size,), (1,), **(drawn or {"mean": 0.5, "std": 0.3}))


def _call(target: str, *args: object, **kwargs: object) -> Op:
    return Op("function", target, args, kwargs)


def _variant(inputs: list[Input], *ops: Op, category: str = "fusible") -> Variant:
    return Variant(category, Graph(len(inputs), ops, (Ref(len(inputs) + len(ops) - 1),)), tuple(inputs), ())


STATISTICS = [_vector("mean", 4, "buffer"), _vector("var", 4, "buffer", low=0.5, high=1.5)]
SUBGRAPHS = {
    "layer_norm": _variant(
        [LINES, _vector("w", 8), _vector("b", 8)],
        _call("operator.mul", Ref(0), 2.0),
        _call("torch.nn.functional.layer_norm", Ref(3), (8,), Ref(1), Ref(2), 1e-5),
        _call("operator.add", Ref(4), Ref(3)),
    ),
    "gelu": _variant([LINES, LINES], _call("operator.add", Ref(0), Ref(1)), _call("torch.nn.functional.gelu", Ref(2))),
    "softmax": _variant(
        [LINES, LINES],
        _call("operator.mul", Ref(0), 0.125),
        _call("operator.add", Ref(2), Ref(1)),
        _call("torch.softmax", Ref(3), -1),
    ),
    "batch_norm": _variant(
        [IMAGES, *STATISTICS, _vector("w", 4), _vector("b", 4)],
        _call("torch.nn.functional.batch_norm", Ref(0), Ref(1), Ref(2), Ref(3), Ref(4), False, 0.1, 1e-5),
        _call("torch.nn.functional.relu", Ref(5), inplace=True),
    ),
    "silu_mul": _variant(
        [LINES, LINES], _call("torch.nn.functional.silu", Ref(0)), _call("operator.mul", Ref(2), Ref(1))
    ),
    "rms_norm": _variant(
        [LINES, _vector("w", 8)],
        Op("method", "pow", (Ref(0), 2), {}),
        Op("method", "mean", (Ref(2), -1), {"keepdim": True}),
        _call("operator.add", Ref(3), 1e-6),
        _call("torch.rsqrt", Ref(4)),
        _call("operator.mul", Ref(0), Ref(5)),
        _call("operator.mul", Ref(1), Ref(6)),
    ),
    "attention": _variant(
        [LINES, LINES, LINES],
        _call("torch.nn.functional.scaled_dot_product_attention", Ref(0), Ref(1), Ref(2)),
        Op("method", "reshape", (Ref(3), 2, 40), {}),
        category="typical",
    ),
    "changes its input": _variant([LINES, LINES], _call("operator.imul", Ref(0), Ref(1)), _call("torch.tanh", Ref(0))),
    "max_pool": _variant(
        [IMAGES],
        _call("torch.nn.functional.max_pool2d", Ref(0), 3, 2, 1),
        _call("torch.nn.functional.interpolate", Ref(1), None, 2.0, "nearest"),
    ),
    "embedding": _variant(
        [
            Input("ids", "input", "int64", (2, 5), (5, 1), low=0.0, high=10.0),
            Input("w", "parameter", "float64", (11, 8), (8, 1), mean=0.0, std=1.0),
        ],
        _call("torch.nn.functional.embedding", Ref(0), Ref(1)),
        _call("operator.mul", Ref(2), 3.0),
    ),
}


def _values(graph: Graph, inputs: list[torch.Tensor]) -> list[object]:
    """Every value of a graph, inputs first."""
    every = Graph(graph.inputs, graph.ops, tuple(Ref(n) for n in range(graph.inputs + len(graph.ops))))
    return list(to_module(every, "cpu").forward(*inputs))


def _gradients(variant: Variant, inputs: list[torch.Tensor], tangents: list[torch.Tensor]) -> list:
    """What autograd gives for each input."""
    leaves = [
        t.clone().requires_grad_(t.is_floating_point() and i.role != "buffer")
        for t, i in zip(inputs, variant.inputs, strict=True)
    ]
    copies = [leaf.clone() for leaf in leaves]  # a leaf may not be changed
    outputs = [out for out in to_module(variant.graph, "cpu").forward(*copies) if out.requires_grad]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    found = iter(torch.autograd.grad(outputs, wanted, tangents, allow_unused=True))
    return [next(found) if leaf.requires_grad else None for leaf in leaves]


@pytest.mark.parametrize("name", SUBGRAPHS)
def test_values_are_the_gradients_of_autograd(name: str) -> None:
    variant = SUBGRAPHS[name]
    parts = split(variant)
    inputs = make_inputs(variant.inputs, 0, 0, "cpu")
    values = _values(parts.forward, [t.clone() for t in inputs])
    specs = parts.inputs[len(parts.saved) :]
    assert list(parts.tangents) == [0] and len(specs) == 1
    tangents = make_inputs(specs, 1, 0, "cpu")
    with torch.no_grad():
        found = to_module(parts.backward, "cpu").forward(*(values[n] for n in parts.saved), *tangents)
    expected = _gradients(variant, inputs, tangents)
    assert parts.gradients and len(found) == len(parts.gradients)
    for gradient, numbers in zip(found, parts.gradients, strict=True):
        for number in numbers:
            torch.testing.assert_close(gradient, expected[number])
    have = {number for numbers in parts.gradients for number in numbers}
    assert have == {n for n, gradient in enumerate(expected) if gradient is not None}


def test_real_subgraphs_give_backward_variants_that_are_variants_like_any_other() -> None:
    forward = [v for v in cut_corpus(corpus()).variants if v.category != "typical" or len(v.graph.ops) < 20]
    forward = unique(map(identify, forward)).variants[::3]
    dropped: Counter[str] = Counter()
    found = [v for each in forward for v in backward(each, dropped)]
    assert {v.category for v in found} == {"sole_op", "fusible", "typical"}
    for variant in found:
        assert variant.direction == "backward" and variant.sources
        assert all(op.target.startswith(("torch.ops.aten.", "operator.getitem")) for op in variant.graph.ops)
        identified = identify(variant)
        batch = pa.RecordBatch.from_pylist([identified.to_row()], ROWS)
        (row,) = batch.to_pylist()
        assert Variant.from_row(row) == identified
        assert outputs_of(identified.graph, propagate(identified.graph, identified.inputs)) == identified.outputs
        module = to_module(identified.graph, "cpu")
        inputs = make_inputs(identified.inputs, 0, 0, "cpu")
        with torch.no_grad():
            outputs = module.forward(*inputs)
        assert all(torch.isfinite(out).all() for out in outputs), identified.code
        assert [(dtype_name(o.dtype), tuple(o.shape)) for o in outputs] == [(o.dtype, o.shape) for o in variant.outputs]


def test_dynamo_captures_a_backward_module() -> None:
    (variant,) = backward(SUBGRAPHS["layer_norm"], Counter())
    captured = []

    def collect(module: torch.fx.GraphModule, _: list[torch.Tensor]) -> Callable:
        captured.append(module)
        return module.forward

    torch._dynamo.reset()
    inputs = make_inputs(variant.inputs, 0, 0, "cpu")
    module = to_module(variant.graph, "cpu")
    found = torch.compile(module, backend=collect, fullgraph=True)(*inputs)
    for a, b in zip(found, module.forward(*inputs), strict=True):
        torch.testing.assert_close(a, b)
    assert from_fx(captured[0].graph).op_sequence == variant.graph.op_sequence


def test_what_has_no_backward_is_counted_by_cause() -> None:
    ids = Input("ids", "input", "int64", (4,), (1,), low=0.0, high=3.0)
    cases = {
        "no float input": _variant([ids], _call("operator.add", Ref(0), 1)),
        "no output depends on a float input": _variant([LINES], _call("operator.gt", Ref(0), 0.0)),
        "nothing to compute: the gradients are tangents or saved values": _variant(
            [LINES, LINES], _call("operator.add", Ref(0), Ref(1))
        ),
        "views alone": _variant([LINES, LINES], _call("torch.cat", (Ref(0), Ref(1)), 1), category="sole_op"),
        "more than one op for a sole_op": _variant(
            [LINES, LINES], _call("operator.mul", Ref(0), Ref(1)), category="sole_op"
        ),
        "no two ops share a kernel": _variant([LINES], _call("torch.relu", Ref(0))),
    }
    for cause, variant in cases.items():
        dropped: Counter[str] = Counter()
        assert list(backward(variant, dropped)) == []
        assert dropped == {f"backward: {cause}": 1}


def test_a_long_backward_graph_comes_in_parts() -> None:
    steps = [_call(f"torch.{name}", Ref(n)) for n, name in enumerate(["sigmoid", "tanh", "sin", "exp"] * 20)]
    whole = split(_variant([LINES], *steps, category="typical")).backward
    parts = list(backward(_variant([LINES], *steps, category="typical"), Counter()))
    assert len(whole.ops) > 64 and len(parts) == -(-len(whole.ops) // 64)
    assert [name for part in parts for name in part.graph.op_sequence] == whole.op_sequence
    gradients = [i for part in parts for i in part.inputs if i.std == 0.1]
    assert len(gradients) == len(parts)  # the tangent, and what the first part hands on


def test_saved_values_are_drawn_as_what_made_them_says() -> None:
    drawn = {i.name: (i.role, i.low, i.high) for i in split(SUBGRAPHS["softmax"]).inputs}
    assert ("input", 0.0, 1.0) in drawn.values()
    by_name = {i.name: i for i in split(SUBGRAPHS["batch_norm"]).inputs}
    assert (by_name["primals_3"].role, by_name["primals_3"].low) == ("buffer", 0.5)
    (index,) = [i for i in split(SUBGRAPHS["max_pool"]).inputs if i.dtype == "int64" and i.shape == (2, 4, 3, 3)]
    assert (index.low, index.high) == (0.0, 35.0)
    assert split(SUBGRAPHS["embedding"]).inputs[0].high == 10.0


def test_dtypes_share_a_trace_and_it_is_that_of_each() -> None:
    forward = unique_corpus(corpus())[::4]
    mentions = _variant([LINES], Op("method", "to", (Ref(0), torch.float16), {}), _call("torch.exp", Ref(1)))
    lines = Input("x", "input", "float32", (2, 5, 8), (40, 8, 1), mean=0.0, std=1.0)
    for subgraph in (*forward, mentions.with_changes(inputs=(lines,), occurrences=3)):
        found, expected = Counter(), Counter()
        variants = list(vary(subgraph, Counter()))
        shared = list(backward_all(variants, found))
        assert shared == [each for variant in variants for each in backward(variant, expected)]
        assert found == expected
        assert all(each.occurrences == subgraph.occurrences for each in shared)


@pytest.mark.parametrize("name", ["layer_norm", "batch_norm"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_norms_have_no_half_precision_backward_for_their_statistics_differ_by_device(name: str, dtype: str) -> None:
    """CUDA: "Expected save_mean to have type Float but got Half"; the CPU asks for the half type."""
    variant, dropped = SUBGRAPHS[name], Counter()
    inputs = tuple(replace(each, dtype=dtype) for each in variant.inputs)
    assert list(backward(variant, Counter()))
    assert not list(backward(variant.with_changes(inputs=inputs), dropped))
    assert dropped == {"backward: does not propagate: dtype": 1}


def test_what_need_not_be_lowered_has_no_two_ops_that_share_a_kernel() -> None:
    images = replace(IMAGES, dtype="float32")
    weight = Input("w", "parameter", "float32", (4, 4, 3, 3), (36, 9, 3, 1), mean=0.0, std=0.3)
    variant = _variant(
        [images, weight],
        _call("torch.conv2d", Ref(0), Ref(1)),
        _call("torch.nn.functional.relu", Ref(2)),
    )
    parts = split(variant)
    assert [base_name(op) for op in parts.backward.ops[:2]] == ["threshold_backward", "convolution_backward"]
    kernels = tuple(map(tuple, kernels_by_op(parts.backward, parts.inputs)))
    prepared = prepare(TracedGraph("backward", 0, parts.backward, parts.inputs, kernels))
    assert not may_share(prepared)
    assert not list(fusible_ranges(prepared))

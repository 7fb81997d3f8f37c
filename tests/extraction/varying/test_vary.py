import math
from collections import Counter

import torch

from extraction.analysis.propagate import Invalid, outputs_of, propagate
from extraction.varying.vary import vary
from storage.graph.as_fx import to_module
from storage.graph.record import Graph, Op, Ref, Sym
from storage.graph.symbols import symbols_of
from storage.records import Input, Variant, dtype_name
from tests.support.graphs import corpus, drawn
from tests.support.in_memory import unique_corpus, vary_all


def _variant(*ops: Op, dtype: str = "float32", second: str | None = None) -> Variant:
    inputs = [Input("x", "input", dtype, (4, 4), (4, 1), mean=0.0, std=1.0)]
    if second:
        inputs.append(Input("y", "input", second, (4, 4), (4, 1), low=0.0, high=3.0))
    return Variant("sole_op", Graph(len(inputs), ops, (Ref(len(inputs) + len(ops) - 1),)), tuple(inputs), ())


def _dtypes(variant: Variant) -> tuple[list[list[str]], Counter[str]]:
    dropped: Counter[str] = Counter()
    return [[i.dtype for i in v.inputs] for v in vary(variant, dropped)], dropped


RELU = Op("function", "torch.relu", (Ref(0),), {})


def test_floats_are_cast_together_and_integers_stay() -> None:
    add = Op("function", "operator.add", (Ref(0), Ref(1)), {})
    assert _dtypes(_variant(add, second="float32"))[0] == [["float32"] * 2, ["float16"] * 2, ["bfloat16"] * 2]
    assert _dtypes(_variant(add, second="int64"))[0] == [[d, "int64"] for d in ("float32", "float16", "bfloat16")]
    assert _dtypes(_variant(RELU, dtype="bfloat16"))[0] == [["float32"], ["float16"], ["bfloat16"]]


def test_what_wants_its_precision_keeps_it() -> None:
    assert _dtypes(_variant(RELU, dtype="float64"))[0] == [["float64"]]
    assert _dtypes(_variant(RELU, dtype="int32"))[0] == [["int32"]]
    to_double = Op("method", "to", (Ref(0), torch.float64), {})
    assert _dtypes(_variant(to_double))[0] == [["float32"]]
    assert _dtypes(_variant(Op("method", "double", (Ref(0),), {})))[0] == [["float32"]]


def test_dtype_constants_stay_and_decide_what_is_valid() -> None:
    upcast = Op("method", "to", (Ref(0), torch.float32), {})
    product = Op("function", "torch.matmul", (Ref(2), Ref(1)), {})
    dtypes, dropped = _dtypes(_variant(upcast, product, second="float32"))
    assert dtypes == [["float32", "float32"]]
    assert dropped == {"float16: dtype": 1, "bfloat16: dtype": 1}


def _rms_norm(cast_back: Op) -> Variant:
    """As Llama and its descendants have it, traced in float32: `weight * normed.to(input_dtype)`, and a product."""
    ops = (
        Op("method", "to", (Ref(0), torch.float32), {}),
        Op("method", "pow", (Ref(2), 2), {}),
        Op("method", "mean", (Ref(3), -1), {"keepdim": True}),
        Op("function", "torch.rsqrt", (Ref(4),), {}),
        Op("function", "operator.mul", (Ref(2), Ref(5)), {}),
        cast_back,
        Op("function", "torch.nn.functional.linear", (Ref(7), Ref(1)), {}),
        Op("method", "float", (Ref(8),), {}),
    )
    return _variant(*ops, second="float32")


def test_a_cast_back_to_the_dtype_of_the_model_follows_it() -> None:
    for cast_back in (
        Op("method", "to", (Ref(6), torch.float32), {}),
        Op("method", "to", (Ref(6),), {"dtype": torch.float32, "copy": False}),
    ):
        dropped: Counter[str] = Counter()
        found = list(vary(_rms_norm(cast_back), dropped))
        assert not dropped
        assert [v.inputs[0].dtype for v in found] == ["float32", "float16", "bfloat16"]
        assert found[0].graph == _rms_norm(cast_back).graph
        for variant in found[1:]:
            dtype = variant.inputs[0].dtype
            first, back = variant.graph.ops[0], variant.graph.ops[5]
            assert first.args[1] == torch.float32, "what widens stays"
            assert [dtype_name(d) for d in (*back.args[1:], *back.kwargs.values()) if d] == [dtype]
            assert variant.outputs[0].dtype == "float32", "and so does what is named"
            assert outputs_of(variant.graph, propagate(variant.graph, variant.inputs)) == variant.outputs


def test_a_model_in_another_precision_keeps_its_casts() -> None:
    back = Op("method", "to", (Ref(0), torch.bfloat16), {})
    assert {v.graph.ops[0].args[1] for v in vary(_variant(back, dtype="bfloat16"), Counter())} == {torch.bfloat16}


def test_a_constant_that_does_not_fit_makes_no_variant() -> None:
    lowest = torch.finfo(torch.float32).min
    dtypes, dropped = _dtypes(_variant(Op("function", "operator.add", (Ref(0), lowest), {})))
    assert dtypes == [["float32"]]
    assert dropped == {"float16: a constant does not fit": 1, "bfloat16: a constant does not fit": 1}


def test_real_variants_run_and_give_what_is_said() -> None:
    subgraphs = unique_corpus(corpus())
    result = vary_all(subgraphs)
    assert len(result.variants) > 2 * len(subgraphs)
    for variant in result.variants:
        with torch.no_grad():
            outputs = to_module(variant.graph, "cpu").forward(*drawn(variant.inputs))
        assert [(o.dtype, o.shape) for o in variant.outputs] == [(dtype_name(o.dtype), tuple(o.shape)) for o in outputs]
        assert all(torch.isfinite(out).all() for out in outputs if out.is_floating_point()), variant


def _symbolic(name: str, *shape: str, dtype: str = "float32", **drawn: float) -> Input:
    """A contiguous input with this symbolic shape, at batch 2, sequence 37 and size 64."""
    sizes = {"batch": 2, "sequence": 37, "size": 64}
    numbers = tuple(eval(each, {}, sizes) for each in shape)
    stride = tuple(math.prod(numbers[n + 1 :]) for n in range(len(numbers)))
    steps = tuple("*".join(f"({each})" for each in shape[n + 1 :]) or "1" for n in range(len(shape)))
    drawn = drawn or {"mean": 0.0, "std": 1.0}
    return Input(name, "input", dtype, numbers, stride, tuple(shape), symbolic_stride=steps, **drawn)


def _traced(inputs: list[Input], *ops: Op, **symbols: int) -> Variant:
    graph = Graph(len(inputs), ops, (Ref(len(inputs) + len(ops) - 1),))
    return Variant("fusible", graph, tuple(inputs), (), symbols=symbols)


HEADS = _traced(
    [_symbolic("x", "batch", "sequence", "64")],
    Op("method", "view", (Ref(0), Sym("batch"), Sym("sequence"), 4, 16), {}),
    Op("method", "transpose", (Ref(1), 1, 2), {}),
    Op("function", "torch.softmax", (Ref(2), -1), {}),
    batch=2,
    sequence=37,
)


def test_symbolic_subgraphs_are_tried_at_points_and_constants_follow() -> None:
    dropped: Counter[str] = Counter()
    found = list(vary(HEADS, dropped))
    assert not dropped and len(found) == 30
    assert [i.dtype for v in found[:3] for i in v.inputs] == ["float32", "float16", "bfloat16"]
    assert found[0].symbols == {"batch": 2, "sequence": 37}
    assert {v.symbols["batch"] for v in found} >= {1, 2, 32}
    for variant in found:
        batch, sequence = variant.symbols["batch"], variant.symbols["sequence"]
        (x,), (out,) = variant.inputs, variant.outputs
        assert (x.shape, x.stride) == ((batch, sequence, 64), (64 * sequence, 64, 1))
        assert variant.graph.ops[0].args[1:] == (batch, sequence, 4, 16) and not symbols_of(variant.graph)
        assert (out.dtype, out.shape) == (x.dtype, (batch, 4, sequence, 16))
        assert x.symbolic_shape == ("batch", "sequence", "64")


def test_outputs_at_points_are_what_propagation_of_each_variant_says() -> None:
    """Dtypes are propagated at one point and points on one dtype; here every variant is."""
    for variant in vary_all([HEADS, INDEXED, CONVOLVED]).variants:
        propagated = propagate(variant.graph, variant.inputs)
        assert not isinstance(propagated, Invalid)
        assert outputs_of(variant.graph, propagated) == variant.outputs


def test_only_symbols_that_are_named_and_shapes_that_differ_count() -> None:
    halves = _traced([_symbolic("x", "batch", "8")], RELU, batch=2, sequence=37)
    assert [v.inputs[0].shape[0] for v in vary(halves, Counter(), ["float32"])] == [2, 1, 3, 4, 6, 8, 16, 32, 64, 128]
    assert all(v.symbols.keys() == {"batch"} for v in vary(halves, Counter()))
    pooled = _traced([_symbolic("x", "batch", "min(4, size)")], RELU, batch=2, size=64)
    shapes = [v.inputs[0].shape for v in vary(pooled, Counter(), ["float32"])]
    assert len(shapes) == len(set(shapes)) == 6


INDEXED = _traced(
    [
        _symbolic("table", "sequence", "16"),
        _symbolic("ids", "batch", "8", dtype="int64", low=0.0, high=36.0),
        _symbolic("bounded", "batch", "8", dtype="int64", low=0.0, high=11.0),
    ],
    Op("function", "operator.getitem", (Ref(0), Ref(1)), {}),
    Op("function", "operator.getitem", (Ref(0), Ref(2)), {}),
    Op("function", "operator.add", (Ref(3), Ref(4)), {}),
    batch=2,
    sequence=37,
)


def test_bounds_of_indices_follow_the_sizes() -> None:
    found = vary_all([INDEXED], dtypes=["float32"]).variants
    assert len(found) == 10
    for variant in found:
        size = variant.symbols["sequence"]
        assert [i.high for i in variant.inputs[1:]] == [size - 1, min(11, size - 1)]
        to_module(variant.graph, "cpu").forward(*drawn(variant.inputs))


CONVOLVED = _traced(
    [_symbolic("x", "batch", "3", "size", "size"), Input("w", "parameter", "float32", (4, 3, 7, 7), (147, 49, 7, 1))],
    Op("function", "torch.conv2d", (Ref(0), Ref(1), None, 2, 3), {}),
    Op("method", "reshape", (Ref(2), Sym("batch"), 4, Sym("(size-1)//2+1"), Sym("(size-1)//2+1")), {}),
    batch=2,
    size=64,
)


def test_points_that_are_not_valid_are_counted_by_cause() -> None:
    fixed = _traced(
        [_symbolic("x", "batch", "sequence", "16")],
        Op("method", "view", (Ref(0), Sym("batch"), Sym("sequence//37"), 37, 16), {}),
        batch=2,
        sequence=37,
    )
    dropped: Counter[str] = Counter()
    assert [v.symbols for v in vary(fixed, dropped, ["float32"])] == [{"batch": 2, "sequence": 37}]
    assert dropped == {"point: shape or argument": 9}

    shrinking = _traced([_symbolic("x", "batch", "sequence-20")], RELU, batch=2, sequence=37)
    dropped = Counter()
    assert len(list(vary(shrinking, dropped))) == 27
    assert dropped == {"point: expression": 3}

    dropped = Counter()
    kept = list(vary(HEADS, dropped, max_bytes=1 << 20))
    assert dropped == {"point: too large": 30 - len(kept)} and 0 < len(kept) < 30
    assert max(v.inputs[0].shape[0] * v.inputs[0].shape[1] for v in kept) * 64 * 4 * 2 <= 1 << 20

    nameless = _traced([_symbolic("x", "batch", "sequence")], RELU, batch=2)
    dropped = Counter()
    assert list(vary(nameless, dropped)) == [] and dropped == {"as traced: expression": 1}

from collections import Counter

import torch

from dedup.hashes import identify_all
from dedup.unique import unique
from extraction.cut import cut_corpus
from extraction.vary import vary, vary_all
from storage.graph import Graph, Op, Ref
from storage.graph_fx import to_module
from storage.records import Input, Variant, dtype_name
from tests.support.graphs import corpus, drawn


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


def test_a_constant_that_does_not_fit_makes_no_variant() -> None:
    lowest = torch.finfo(torch.float32).min
    dtypes, dropped = _dtypes(_variant(Op("function", "operator.add", (Ref(0), lowest), {})))
    assert dtypes == [["float32"]]
    assert dropped == {"float16: a constant does not fit": 1, "bfloat16: a constant does not fit": 1}


def test_real_variants_run_and_give_what_is_said() -> None:
    subgraphs = unique(identify_all(cut_corpus(corpus()).variants))
    result = vary_all(subgraphs.variants)
    assert len(result.variants) > 2 * len(subgraphs.variants)
    for variant in result.variants:
        with torch.no_grad():
            outputs = to_module(variant.graph, "cpu").forward(*drawn(variant.inputs))
        assert [(o.dtype, o.shape) for o in variant.outputs] == [(dtype_name(o.dtype), tuple(o.shape)) for o in outputs]
        assert all(torch.isfinite(out).all() for out in outputs if out.is_floating_point()), variant

import pyarrow as pa
import pytest

from dedup.hashes import identify
from storage.graph.record import GraphError
from storage.records import Input, Variant, dtype_name, dtype_of
from storage.schema import SAMPLES, SUBGRAPHS
from tests.support.graphs import corpus
from tests.support.in_memory import cut_corpus, make_samples


def _variants() -> list[Variant]:
    return list(map(identify, cut_corpus(corpus()).variants))


def test_variants_survive_parquets_types() -> None:
    variants = _variants()
    table = pa.Table.from_pylist([v.to_row() for v in variants], SUBGRAPHS)
    assert [Variant.from_row(row) for row in table.to_pylist()] == variants


def test_samples_fit_the_schema() -> None:
    samples = make_samples(_variants())
    table = pa.Table.from_pylist([s.to_row() for s in samples], SAMPLES)
    assert table.column("sample").to_pylist() == [s.sample for s in samples]
    assert all(row["variants"] and row["op_sequence"] for row in table.to_pylist())


def test_a_row_with_a_malformed_graph_is_refused() -> None:
    row = _variants()[0].to_row()
    with pytest.raises(GraphError):
        Variant.from_row({**row, "graph": "{}"})


def test_inputs_round_trip() -> None:
    given = Input("x", "buffer", "bfloat16", (2, 3), (3, 1), ("s0", "3"), low=-1.0, high=1.0)
    assert Input.from_row(given.to_row()) == given


def test_dtype_names() -> None:
    assert dtype_name(dtype_of("bfloat16")) == "bfloat16"
    for name in ("_inductor", "nn", "Tensor", "no_such"):
        with pytest.raises(ValueError, match="not a torch dtype"):
            dtype_of(name)

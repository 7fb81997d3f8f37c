"""A catalogue through the workers: rows, graphs, and what each way of failing becomes."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from extraction.examples.inputs import BATCH, TEXT_LENGTH
from extraction.pool.client import Pool, TaskReply
from extraction.sources.catalog import parse_entry
from extraction.sources.spec import spec_of, specified
from extraction.tracing.trace_files import TraceOutcome, graph_to_row, read_traces, write_traces
from extraction.tracing.trace_workers import failed_row, outcome_of, trace_all
from storage.errors import PassNetError
from storage.graph.record import Graph, Op, Ref
from storage.records import Input, TracedGraph
from storage.schema import MODELS

TEXTS = ["timm:resnet10t", "timm:resnet10t.c3_in1k", "transformers:bert", "timm:resnet10", "transformers:brt"]
ENTRIES = [parse_entry(text) for text in TEXTS]
BERT = parse_entry("transformers:bert")
SMALL = TracedGraph(
    BERT.text,
    0,
    Graph(1, (Op("function", "torch.relu", (Ref(0),), {}),), (Ref(1),)),
    (Input("x", "input", "float32", (2, 3), (3, 1), mean=0.0, std=1.0),),
)
ANSWER = {
    "graphs": [graph_to_row(SMALL)],
    "graph_breaks": ["because"],
    "symbols": {},
    "static_reason": "batch = 2: Eq(batch, 2)",
}


@pytest.fixture(scope="module")
def outcomes(build_pool: Pool) -> dict[str, TraceOutcome]:
    return {outcome.entry.text: outcome for outcome in trace_all(specified(ENTRIES), build_pool)}


def test_every_entry_has_an_outcome(outcomes: dict[str, TraceOutcome]) -> None:
    assert set(outcomes) == {entry.text for entry in ENTRIES}
    bert = outcomes["transformers:bert"]
    assert bert.traced
    assert bert.row["graphs"] == len(bert.graphs) == 1
    assert bert.row["ops"] == len(bert.graphs[0].graph.ops) > 50
    assert bert.graphs[0].kernels is not None
    assert bert.graphs[0].source == "transformers:bert"
    assert bert.row["symbols"] == bert.graphs[0].symbols == {"batch": BATCH, "sequence": TEXT_LENGTH}
    assert bert.row["static_reason"] == ""
    assert set(bert.row["libraries"]) == {"torch", "transformers"}


def test_unknown_names_are_rows_with_a_category(outcomes: dict[str, TraceOutcome]) -> None:
    for text in ("timm:resnet10", "transformers:brt"):
        row = outcomes[text].row
        assert (row["status"], row["error_category"], row["graphs"]) == ("failed", "not_found", 0)
        assert "did you mean" in row["message"]


def test_entries_with_one_spec_are_traced_once(outcomes: dict[str, TraceOutcome]) -> None:
    first, other = outcomes["timm:resnet10t"], outcomes["timm:resnet10t.c3_in1k"]
    assert first.row["config_hash"] == other.row["config_hash"]
    assert (len(first.graphs), len(other.graphs)) == (1, 0)
    assert other.traced
    assert other.row["message"] == "shares the trace of timm:resnet10t"
    assert other.row["ops"] == first.row["ops"]


def test_traces_survive_parquet(outcomes: dict[str, TraceOutcome], tmp_path: Path) -> None:
    write_traces(tmp_path / "one", outcomes.values())
    write_traces(tmp_path / "two", reversed(outcomes.values()))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"one", "two"}
    rows, graphs = read_traces(tmp_path / "one")
    assert rows == sorted((outcome.row for outcome in outcomes.values()), key=lambda row: row["model"])
    assert graphs == [graph for text in sorted(outcomes) for graph in outcomes[text].graphs]
    assert pa.Table.from_pylist(rows, MODELS).num_rows == len(rows)


@pytest.mark.parametrize(
    ("end", "code", "log", "category", "message"),
    [
        ("timeout", 60, "", "timeout", "stopped after 60 s"),
        ("signal", 11, "half way\n", "crashed", "signal 11; last output: half way"),
        ("signal", 9, "", "out_of_memory", "killed when memory ran out"),
        ("signal", 6, "terminate called after throwing an instance of 'std::bad_alloc'", "out_of_memory", "bad_alloc"),
        ("exit", 3, "bye", "crashed", "exit code 3; last output: bye"),
    ],
)
def test_a_worker_that_ends_without_an_answer(end: str, code: int, log: str, category: str, message: str) -> None:
    outcome = outcome_of(BERT, spec_of(BERT), TaskReply({}, None, end, code, log, 1.5))
    assert (outcome.row["status"], outcome.row["error_category"]) == ("failed", category)
    assert message in outcome.row["message"]
    assert outcome.row["seconds"] == 1.5


def test_a_worker_that_is_stopped_after_tracing_loses_only_the_kernels() -> None:
    outcome = outcome_of(BERT, spec_of(BERT), TaskReply({}, ANSWER, "timeout", 60, "", 60.0))
    assert outcome.traced
    assert outcome.row["graph_breaks"] == ["because"]
    assert (outcome.row["symbols"], outcome.row["static_reason"]) == ({}, "batch = 2: Eq(batch, 2)")
    assert outcome.graphs == (replace(SMALL, lowering_error="timeout: stopped after 60 s"),)


def test_an_answer_with_an_error_is_a_failed_row() -> None:
    reply = TaskReply({}, {"error": ["graph_break", "no graph"]}, "exit", 0, "", 2.0)
    outcome = outcome_of(BERT, spec_of(BERT), reply)
    assert outcome.row == failed_row(BERT, spec_of(BERT), "graph_break", "no graph", 2.0)


def test_bad_trace_files_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(PassNetError, match="cannot be read"):
        read_traces(tmp_path / "missing")
    (tmp_path / "torn").write_bytes(b"PAR1")
    with pytest.raises(PassNetError, match="delete it and build again"):
        read_traces(tmp_path / "torn")
    pq.write_table(pa.table({"x": [1]}), tmp_path / "other")
    with pytest.raises(PassNetError, match="not a traces file of this version"):
        read_traces(tmp_path / "other")
    with pytest.raises(PassNetError, match="cannot write"):
        write_traces(tmp_path / "torn" / "below a file", [])

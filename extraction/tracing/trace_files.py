"""Traced graphs as Parquet: one file holds the model rows of a shard and their graphs, and marks it as complete."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from extraction.sources.catalog import Entry
from storage.errors import PassNetError
from storage.graph.as_json import from_json, to_json
from storage.parquet import write_rows
from storage.records import Input, TracedGraph
from storage.schema import INPUT, MODELS

GRAPH = pa.struct(
    [
        ("model", pa.string()),
        ("index", pa.int32()),
        ("graph", pa.string()),  # JSON, see storage.graph.as_json
        ("inputs", pa.list_(INPUT)),
        ("kernels", pa.list_(pa.list_(pa.int32()))),  # by op; null where TorchInductor cannot lower the graph
        ("lowering_error", pa.string()),
        ("symbols", pa.map_(pa.string(), pa.int64())),
        ("symbolic", pa.string()),  # JSON: for each value the expressions of its shape and stride, or null
    ]
)

TRACES = pa.schema([*MODELS, ("traced_graphs", pa.list_(GRAPH))])
"""A model's row with its graphs."""


@dataclass(frozen=True)
class TraceOutcome:
    """What came of an entry: its row of the `models` table, and its graphs.

    An entry whose spec another entry of the same call shares has that one's counts and no graphs; its row's message
    names the other.
    """

    entry: Entry
    row: dict[str, Any]
    graphs: tuple[TracedGraph, ...] = ()

    @property
    def traced(self) -> bool:
        """Whether there are graphs of this entry's spec."""
        return self.row["status"] == "traced"


def graph_to_row(traced: TracedGraph) -> dict[str, Any]:
    """A traced graph as plain data, of the `GRAPH` type."""
    return {
        "model": traced.model,
        "index": traced.index,
        "graph": to_json(traced.graph),
        "inputs": [each.to_row() for each in traced.inputs],
        "kernels": None if traced.kernels is None else [list(numbers) for numbers in traced.kernels],
        "lowering_error": traced.lowering_error,
        "symbols": dict(traced.symbols),
        "symbolic": json.dumps(traced.symbolic, separators=(",", ":")),
    }


def graph_from_row(row: Mapping[str, Any]) -> TracedGraph:
    """The traced graph of a row. Raises GraphError on a malformed graph."""
    kernels = row["kernels"]
    return TracedGraph(
        model=row["model"],
        index=row["index"],
        graph=from_json(row["graph"]),
        inputs=tuple(Input.from_row(each) for each in row["inputs"]),
        kernels=None if kernels is None else tuple(tuple(numbers) for numbers in kernels),
        lowering_error=row["lowering_error"],
        symbols=dict(row["symbols"]),
        symbolic=tuple(each and (tuple(each[0]), tuple(each[1])) for each in json.loads(row["symbolic"])),
    )


def write_traces(path: Path, outcomes: Iterable[TraceOutcome]) -> None:
    """Writes outcomes in the order of their models' names; the file is there complete, or not at all.

    Equal outcomes give equal bytes. Raises PassNetError if the file cannot be written.
    """
    rows = [
        {**outcome.row, "traced_graphs": [graph_to_row(each) for each in outcome.graphs]}
        for outcome in sorted(outcomes, key=lambda outcome: outcome.row["model"])
    ]
    write_rows(path, rows, TRACES)


def read_traces(path: Path) -> tuple[list[dict[str, Any]], list[TracedGraph]]:
    """The model rows and the traced graphs that `write_traces` wrote.

    Raises PassNetError if the file is missing, corrupt or of another version's schema.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise PassNetError(f"{path} cannot be read: {error}; delete it and build again") from error
    if not table.schema.equals(TRACES):
        raise PassNetError(f"{path} is not a traces file of this version; delete it and build again")
    rows = table.to_pylist()
    graphs = [graph_from_row(each) for row in rows for each in row["traced_graphs"]]
    maps = ("libraries", "symbols")
    models = [{name: dict(row[name]) if name in maps else row[name] for name in MODELS.names} for row in rows]
    return models, graphs

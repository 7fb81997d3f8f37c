"""What a worker does with one shard of a build: cut graphs, or vary subgraphs, into a file of rows.

It runs in killable processes (`extraction.pool.client`), so this module imports no Prefect. A payload is JSON data:
what to read, and the file to write. The file appears complete or not at all; its summary holds what was counted.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dedup.hashes import identify, identify_base
from dedup.rows import ROWS, VARIED, batches, content_key, rows_at, write
from extraction.analysis.prepared import tokens
from extraction.cutting.backward import backward_all
from extraction.cutting.cut import cut_graph, cut_typical
from extraction.kernels.lowering import kernels_by_op
from extraction.tracing.trace_files import read_traces
from extraction.varying.shape_points import MAX_POINTS
from extraction.varying.vary import vary
from storage.graph.record import Graph, Op, Ref
from storage.records import Input, TracedGraph, Variant


def cut_shard(payload: dict[str, Any]) -> Iterator[dict[str, int]]:
    """The sole_op and fusible subgraphs of some models.

    The summary has each model's graphs as `texts`, in which typical sequences are searched for: for each op a number of
    `names`, −1 for an op that no sequence may hold.

    Payload: `file` and `models` as `graphs_of` takes them, `out`.
    """
    dropped: Counter[str] = Counter()
    names: dict[str, int] = {}
    texts: dict[str, list[list[int]]] = {}
    summary = {"dropped": dropped, "names": names, "texts": texts}

    def subgraphs() -> Iterator[Variant]:
        for graph in graphs_of(payload):
            yield from cut_graph(graph, dropped)
            text = [-1 if token is None else names.setdefault(token, len(names)) for token in tokens(graph)]
            texts.setdefault(graph.model, []).append(text)

    yield {"rows": write(Path(payload["out"]), batches(map(identify_base, subgraphs())), ROWS, summary)}


def typical_shard(payload: dict[str, Any]) -> Iterator[dict[str, int]]:
    """The typical subgraphs of some models.

    Payload: `file` and `models` as `graphs_of` takes them, `ranges` of each model's graphs, `out`.
    """
    dropped: Counter[str] = Counter()
    ranges = {model: iter(of_graphs) for model, of_graphs in payload["ranges"].items()}
    found = (
        identify_base(variant)
        for graph in graphs_of(payload)
        for variant in cut_typical(graph, [(start, end) for start, end in next(ranges[graph.model])], dropped)
    )
    yield {"rows": write(Path(payload["out"]), batches(found), ROWS, {"dropped": dropped})}


def vary_shard(payload: dict[str, Any]) -> Iterator[dict[str, int]]:
    """The variants of some subgraphs, and of their backward graphs.

    The summary has what was dropped of each of the `subgraphs`, by its content key.

    Payload: `rows` of `file` (row group and number in it), `points` (shape points of each at most), `out`.
    """
    dropped: Counter[str] = Counter()
    subgraphs: dict[str, Counter[str]] = {}
    rows = rows_at(Path(payload["file"]), payload["rows"]).to_pylist()

    def varied() -> Iterator[pa.RecordBatch]:
        for row in rows:
            key, own = content_key(row), Counter()
            found = (identify(each) for each in variants_of(Variant.from_row(row), own, payload["points"]))
            for batch in batches(found):
                yield pa.RecordBatch.from_arrays([*batch.columns, pa.array([key] * len(batch))], schema=VARIED)
            subgraphs[key] = own
            dropped.update(own)

    summary = {"dropped": dropped, "subgraphs": subgraphs}
    yield {"rows": write(Path(payload["out"]), varied(), VARIED, summary)}


def prepare() -> None:
    """Cuts, varies and lowers a small graph into rows, so that every worker starts with all imported and warm.

    The first rows cost half a second of the processor or more, since pyarrow imports pandas for them. The graph takes
    no gradient: autograd's threads do not outlive the fork.
    """
    ops = (Op("function", "torch.relu", (Ref(0),), {}), Op("function", "torch.exp", (Ref(1),), {}))
    inputs = (Input("in_0", "input", "float32", (2, 3), (3, 1), mean=0.0, std=1.0),)
    graph = TracedGraph("warm-up", 0, Graph(1, ops, (Ref(2),)), inputs, kernels_by_op(Graph(1, ops, (Ref(2),)), inputs))
    for subgraph in cut_graph(graph, Counter()):
        list(batches(map(identify, vary(subgraph, Counter()))))


def graphs_of(payload: dict[str, Any]) -> list[TracedGraph]:
    """The graphs of the models that a payload names, in the order of their file.

    `file` is one of traces; `models` has the name of each model there, and the name that it has in the catalogue.
    """
    _, graphs = read_traces(Path(payload["file"]))
    models = payload["models"]
    return [replace(graph, model=models[graph.model]) for graph in graphs if graph.model in models]


def variants_of(subgraph: Variant, dropped: Counter[str], points: int = MAX_POINTS) -> Iterator[Variant]:
    """All variants of a subgraph at up to `points` shape points; its backward graph on each dtype, at the sizes of its
    trace."""
    shapes = [each.shape for each in subgraph.inputs]
    traced = []
    for variant in vary(subgraph, dropped, limit=points):
        yield variant
        if [each.shape for each in variant.inputs] == shapes:
            traced.append(variant)
    yield from backward_all(traced, dropped)

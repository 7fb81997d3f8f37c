"""The subgraphs of a whole corpus: cuts the traces of a data directory, merges what is equal, and writes tables.

    python -m benchmarks.extraction.corpus_table --catalog timm --catalog transformers --data DIR --workers 16 --out DIR

Models of the catalogues that DIR holds no trace of are left out, and counted. Writes DIR/corpus.md and corpus.json.
"""

import argparse
import hashlib
import json
import logging
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dedup.canonical import canonical
from dedup.database import Engine, parquet
from dedup.hashes import family_hash, graph_hash, identify_base
from extraction.cutting.cut import cut_graph
from extraction.pool.client import Pool
from extraction.sources.catalog import Entry, read_catalog
from extraction.sources.spec import specified
from extraction.tracing.trace_store import TraceStore
from extraction.varying.shape_points import MAX_POINTS
from flows.build.shard_tasks import graphs_of
from flows.build.subgraphs import Subgraphs, alone, cut, digest_of, working
from flows.build.traced import Traced, find_traces
from storage.graph.render import render
from storage.records import Variant
from storage.versions.provenance import library_versions

_SIZES = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 64))


def main() -> None:
    parser = parser_of_corpus(__doc__)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    entries, left = held(arguments)
    traced = find_traces(TraceStore(arguments.data / "traces"), specified(entries))
    begin = time.monotonic()
    with (
        alone(arguments.data),
        working(arguments.data, digest_of(traced, MAX_POINTS)) as work,
        Engine(work.of_build / "engine", memory_mb=8_192) as engine,
        Pool(workers=arguments.workers, timeout_s=arguments.timeout, memory_mb=arguments.memory) as pool,
    ):
        subgraphs = cut(traced, work, pool, engine)
        seconds = time.monotonic() - begin
        named = work.of_build / "identities.parquet"
        pq.write_table(identities(traced, arguments.workers), named)
        found = figures(engine, traced, subgraphs, named)
    found |= {"left_out": left, "seconds": round(seconds, 1), "workers": arguments.workers}
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "corpus.json").write_text(json.dumps(found, indent=1) + "\n")
    (arguments.out / "corpus.md").write_text(text := markdown(found))
    print(text)


def parser_of_corpus(description: str) -> argparse.ArgumentParser:
    """Options of what cuts the traces of a data directory."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalog", action="append", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds a shard")
    parser.add_argument("--memory", type=int, default=8_192, help="MiB a worker")
    return parser


def held(arguments: argparse.Namespace) -> tuple[list[Entry], int]:
    """The entries that are traced, well or not, and how many are not traced yet."""
    entries = [entry for name in arguments.catalog for entry in read_catalog(name, None)]
    missing = set(TraceStore(arguments.data / "traces").missing(specified(entries)))
    kept = [entry for entry in entries if entry not in missing]
    return kept, len(entries) - len(kept)


def identities(traced: Traced, workers: int) -> pa.Table:
    """Hashes of each sole_op and fusible subgraph as it was cut: of its source text, and PassNet's."""
    payloads = [
        {"file": str(path.resolve()), "models": {name: model}}
        for path, names in traced.files.items()
        for name, model in names.items()
    ]
    with ProcessPoolExecutor(workers) as pool:
        found = [row for rows in pool.map(identities_of, payloads, chunksize=4) for row in rows]
    return pa.Table.from_pylist(found)


def identities_of(payload: dict[str, Any]) -> list[dict[str, str]]:
    """The rows of `identities` of one model; it is cut again, as a build keeps the canonical form alone."""
    return [hashes(each) for graph in graphs_of(payload) for each in cut_graph(graph, Counter())]


def hashes(subgraph: Variant) -> dict[str, str]:
    """Identities of a subgraph."""
    text = render(subgraph.graph)
    described = text + repr([(i.dtype, i.shape, i.stride) for i in subgraph.inputs])
    form = canonical(subgraph.graph).graph
    return {
        "category": subgraph.category,
        "text": hashlib.sha256(text.encode()).hexdigest(),
        "described": hashlib.sha256(described.encode()).hexdigest(),
        "graph": graph_hash(form),
        "family": family_hash(form),
        "base": identify_base(subgraph).variant_hash,
    }


def figures(engine: Engine, traced: Traced, subgraphs: Subgraphs, named: Path) -> dict[str, Any]:
    """All that the tables show. `named` has the rows of `identities`."""
    hashed, unique = parquet([named]), parquet(subgraphs.paths)
    models = Counter((m["source"], m["error_category"] or "traced") for m in traced.models)
    return {
        "libraries": library_versions(),
        "models": [[source, end, count] for (source, end), count in sorted(models.items())],
        "categories": rows(engine, f"""
            SELECT category, sum(occurrences)::BIGINT, count(*) FROM {unique} GROUP BY ALL ORDER BY category"""),
        "identities": rows(engine, f"""
            SELECT category, count(*), count(DISTINCT text), count(DISTINCT graph), count(DISTINCT family),
                count(DISTINCT described), count(DISTINCT base)
            FROM {hashed} GROUP BY ROLLUP (category) ORDER BY category NULLS LAST"""),
        "sources": rows(engine, f"""
            SELECT kinds, category, count(*) FROM (
                SELECT category, list_aggregate(list_sort(list_distinct(
                    list_transform(sources, lambda s: split_part(s.model, ':', 1)))), 'string_agg', ' + ') kinds
                FROM {unique}) GROUP BY ALL ORDER BY ALL"""),
        "sizes": rows(engine, f"""
            SELECT len(op_sequence), category, count(*) FROM {unique} GROUP BY ALL ORDER BY ALL"""),
        "dtypes": rows(engine, f"""
            SELECT dtypes, category, count(*) FROM (
                SELECT category, list_aggregate(list_sort(list_distinct(
                    list_transform(inputs, lambda i: i.dtype))), 'string_agg', ' + ') dtypes
                FROM {unique}) GROUP BY ALL ORDER BY 3 DESC, 1, 2"""),
        "ops": rows(engine, f"""
            SELECT op, count(*) FROM (SELECT unnest(list_distinct(op_sequence)) op FROM {unique})
            GROUP BY op ORDER BY 2 DESC, 1"""),
        "repeated": rows(engine, f"""
            SELECT category, max(occurrences), median(occurrences), count(*) FILTER (occurrences = 1)
            FROM {unique} GROUP BY category ORDER BY category"""),
        "dropped": dict(subgraphs.dropped.most_common()),
    }  # fmt: skip


def rows(engine: Engine, sql: str) -> list[list]:
    """A query's rows as JSON data."""
    return [list(row) for row in engine.run(sql)]


def markdown(found: dict[str, Any]) -> str:
    """The tables as Markdown."""
    libraries = ", ".join(f"{name} {version}" for name, version in found["libraries"].items())
    unique = sum(row[2] for row in found["categories"])
    occurrences = sum(row[1] for row in found["categories"])
    text = [
        f"{unique:,} unique subgraphs of {occurrences:,} (forward, at the sizes and dtypes of their traces), cut in "
        f"{found['seconds']:.0f} s by {found['workers']} workers; {found['left_out']} models of the catalogues were "
        "not traced in the time there was.",
        "",
        f"Libraries: {libraries}.",
        "",
        *table(("source", "end", "models"), found["models"]),
        *table(("category", "subgraphs cut", "unique"), found["categories"]),
        "The same sole_op and fusible subgraphs counted by their source text and by PassNet's hashes: of the graph "
        "without names and order (graph), without constants too (family), and of the graph with its inputs' dtypes, "
        "shapes, layouts and symbols (subgraph).",
        "",
        *table(
            ("category", "subgraphs cut", "texts", "graphs", "families", "texts with inputs", "subgraphs"),
            [[row[0] or "all", *row[1:]] for row in found["identities"]],
        ),
        *by_category("sources", found["sources"]),
        *by_category("ops", grouped(found["sizes"])),
        *by_category("dtypes of inputs", found["dtypes"][:30]),
        f"{len(found['ops'])} different operators; the most frequent ones:",
        "",
        *table(("operator", "unique subgraphs that hold it"), found["ops"][:30]),
        *table(("category", "most occurrences", "median", "occurring once"), found["repeated"]),
        *table(("left out", "count"), list(found["dropped"].items())[:20]),
    ]
    return "\n".join(text)


def grouped(sizes: list[list]) -> list[list]:
    """Counts by number of ops as counts by range."""
    totals: Counter[tuple[str, str]] = Counter()
    for ops, category, count in sizes:
        low, high = next(pair for pair in _SIZES if pair[0] <= ops <= pair[1])
        totals[str(low) if low == high else f"{low} to {high}", category] += count
    return [[size, category, count] for (size, category), count in totals.items()]


def by_category(title: str, counts: list[list]) -> list[str]:
    """Rows of (what, category, count) as a table with a column a category."""
    categories = list(dict.fromkeys(["sole_op", "fusible", "typical", *(row[1] for row in counts)]))
    cells = {(what, category): count for what, category, count in counts}
    names = dict.fromkeys(what for what, _, _ in counts)
    lines = [[name, *(cells.get((name, category), 0) for category in categories)] for name in names]
    return table((title, *categories), lines)


def table(head: tuple[str, ...], lines: list) -> list[str]:
    """A Markdown table and an empty line."""
    shown = [" | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in line) for line in lines]
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {line} |" for line in shown), ""]


if __name__ == "__main__":
    main()

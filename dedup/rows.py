"""Identified variants as rows on their way to the engine: a row of `subgraphs`, and what orders rows that merge."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.parquet import corrupt, write_parquet
from storage.records import Variant
from storage.schema import SUBGRAPHS

PLACE = pa.schema([("model", pa.string()), ("start", pa.int32()), ("end", pa.int32()), ("tie", pa.string())])
"""The first source of a row; `tie` is a hash of what a variant hash leaves out (roles, ranges, kernels, symbols)."""

ROWS = pa.schema([*SUBGRAPHS, *PLACE])

VARIED = pa.schema([*ROWS, ("subgraph", pa.string())])
"""Rows of variants, each with the `content_key` of the subgraph that it was made of."""

BATCH = 500


def place_of(variant: Variant) -> dict[str, Any]:
    """The `PLACE` columns of a variant. Raises ValueError if it has no hash (`dedup.hashes.identify` sets it)."""
    if not variant.variant_hash:
        raise ValueError("a variant has no hash; identify it first")
    model, start, end = min(((s.model, s.start, s.end) for s in variant.sources), default=("", -1, -1))
    hints = [(i.role, i.low, i.high, i.mean, i.std, i.symbolic_shape, i.symbolic_stride) for i in variant.inputs]
    text = json.dumps([hints, variant.kernels, variant.direction, sorted(variant.symbols.items())])
    return {"model": model, "start": start, "end": end, "tie": hashlib.sha256(text.encode()).hexdigest()[:16]}


def content_key(row: Mapping[str, Any]) -> str:
    """Identity of what a row of `subgraphs` says of its graph (sha256, 20 hex digits): all columns but those that say
    where it was found, which a larger corpus changes."""
    told = {name: row[name] for name in SUBGRAPHS.names if name not in ("sources", "occurrences")}
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:20]


def batches(variants: Iterable[Variant], size: int = BATCH) -> Iterator[pa.RecordBatch]:
    """Identified variants as Arrow batches of `ROWS`."""
    rest = iter(variants)
    while chunk := [{**variant.to_row(), **place_of(variant)} for variant in islice(rest, size)]:
        yield pa.RecordBatch.from_pylist(chunk, ROWS)


def write(
    path: Path,
    rows: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    summary: Mapping[str, Any],
    group_rows: int = BATCH,
) -> int:
    """Write batches as a Parquet file that is there complete or not at all, and so marks its work as done.

    Row groups have `group_rows` rows, the last one fewer. `summary` (JSON data, which may be filled while `rows` is
    consumed) goes with it; `storage.parquet.parquet_summary` reads it. Returns the number of rows. Raises PassNetError
    if the file cannot be written.
    """
    return write_parquet(path, _groups(rows, schema, group_rows), schema, summary)


def _groups(rows: Iterable[pa.RecordBatch], schema: pa.Schema, size: int) -> Iterator[pa.Table]:
    """The same rows in tables of exactly `size` rows, the last one shorter."""
    pending = pa.Table.from_batches([], schema)
    for batch in rows:
        pending = pa.concat_tables([pending, pa.Table.from_batches([batch], schema)])
        while len(pending) >= size:
            yield pending.slice(0, size).combine_chunks()
            pending = pending.slice(size)
    if len(pending):
        yield pending.combine_chunks()


def rows_at(path: Path, places: Sequence[tuple[int, int]]) -> pa.Table:
    """The rows at these places of a file: number of the row group, and number of the row in it; groups in order."""
    with pq.ParquetFile(path) as file:
        groups = [
            file.read_row_group(group).take([row for _, row in some])
            for group, some in groupby(places, key=lambda place: place[0])
        ]
    return pa.concat_tables(groups)


def stream(path: Path, columns: Sequence[str] | None = None, size: int = BATCH) -> Iterator[pa.RecordBatch]:
    """The batches of a file of `write`, in its order. Raises PassNetError if the file is corrupt."""
    try:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(size, columns=columns)
    except (OSError, pa.ArrowException) as error:
        raise corrupt(path, error) from error

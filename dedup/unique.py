"""Each variant once: duplicates merge, and the row says how often and where it stood.

Variants of one category with the same variant hash merge. What the hash leaves out (roles, ranges, kernels) comes
from the variant whose source is first by model, start and end. Occurrences are summed. The order in which variants
come, and the files and batches in which they come, do not matter.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dedup.database import Engine, parquet
from dedup.rows import PLACE, place_of, tables, write
from dedup.sorted_rows import Sorter
from storage.records import Source, Variant
from storage.schema import CATEGORIES, SUBGRAPHS

MAX_SOURCES = 16
"""Sources that a variant keeps: the first in order of model, start and end. `occurrences` counts them all."""

_MERGE = f"""
CREATE OR REPLACE TABLE merged AS
WITH firsts AS (
    SELECT category, variant_hash, sum(occurrences)::BIGINT AS occurrences, count(*) AS rows,
        arg_min(struct_pack(filename, file_row_number), struct_pack(model, "start", "end", tie)) AS first
    FROM {{relation}} GROUP BY ALL
), places AS (
    SELECT category, variant_hash, min(source, {MAX_SOURCES}) AS sources
    FROM (SELECT DISTINCT category, variant_hash, unnest(sources) AS source FROM {{relation}}) GROUP BY ALL
)
SELECT firsts.* EXCLUDE (first), first.filename, first.file_row_number, coalesce(sources, []) AS sources
FROM firsts LEFT JOIN places USING (category, variant_hash)
"""

_KEPT = """
SELECT file_row_number, sources, occurrences FROM merged WHERE filename = $file ORDER BY file_row_number
"""


@dataclass(frozen=True)
class UniqueResult:
    """Variants by category and hash; `duplicates` counts by category the variants that merged into another."""

    variants: tuple[Variant, ...]
    duplicates: Counter[str]


def unique_paths(directory: Path) -> dict[str, Path]:
    """The files of `unique_files` below a directory, by category."""
    return {category: directory / f"{category}.parquet" for category in CATEGORIES}


def unique_files(
    engine: Engine,
    paths: Sequence[Path],
    directory: Path,
    group_rows: int = 1000,
    summary: Mapping[str, Any] | None = None,
) -> dict[str, Path]:
    """Merges the variants in files of `dedup.rows` into a file a category below `directory`, ordered by hash.

    The summary of a file is `summary` with its `duplicates`, rows that merged into another. Row groups have
    `group_rows` rows, the last one fewer. Memory is that of the engine and of one bucket of rows.
    """
    files = unique_paths(directory)
    duplicates = _merge(engine, parquet(paths)) if paths else Counter()
    kept = dict(engine.run("SELECT category, count(*) FROM merged GROUP BY ALL")) if paths else {}
    sorters = {c: Sorter(directory / f".{c}", SUBGRAPHS, "variant_hash", kept.get(c, 0)) for c in CATEGORIES}
    for table in (table for path in paths for table in _kept(engine, path)):
        for category, sorter in sorters.items():
            sorter.add(table.filter(pc.field("category") == category))
    for category, file in files.items():
        write(
            file,
            sorters[category].ordered(),
            SUBGRAPHS,
            {**(summary or {}), "duplicates": duplicates[category]},
            group_rows,
        )
    return files


def _kept(engine: Engine, path: Path) -> Iterator[pa.Table]:
    """The rows of a file that are kept, with their merged sources and occurrences."""
    schema = pa.schema([("file_row_number", pa.int64()), SUBGRAPHS.field("sources"), SUBGRAPHS.field("occurrences")])
    merged = pa.Table.from_batches(engine.stream(_KEPT, schema, {"file": str(path)}), schema)
    numbers = merged.column("file_row_number").to_numpy()
    done = 0
    for rows in tables(path, SUBGRAPHS.names):
        first, last = np.searchsorted(numbers, (done, done + len(rows)))
        table = rows.take(numbers[first:last] - done)
        for name in ("sources", "occurrences"):
            column = merged.column(name).slice(first, last - first)
            table = table.set_column(SUBGRAPHS.get_field_index(name), SUBGRAPHS.field(name), column)
        yield table
        done += len(rows)


def unique(variants: Iterable[Variant]) -> UniqueResult:
    """Merges variants that fit in memory. Raises ValueError on a variant without hash."""
    given = list(variants)
    schema = pa.schema(
        [
            *PLACE,
            *(SUBGRAPHS.field(name) for name in ("category", "variant_hash", "occurrences", "sources")),
            ("filename", pa.string()),
            ("file_row_number", pa.int64()),
        ]
    )
    rows = [
        {
            **place_of(v),
            "category": v.category,
            "variant_hash": v.variant_hash,
            "occurrences": v.occurrences,
            "sources": [vars(s) for s in v.sources],
            "filename": "",
            "file_row_number": number,
        }
        for number, v in enumerate(given)
    ]
    with Engine() as engine:
        engine.table("given", pa.Table.from_pylist(rows, schema))
        duplicates = _merge(engine, "given")
        found = {(category, key): rest for category, key, *rest in engine.run(_MERGED)}
    rank = {category: number for number, category in enumerate(CATEGORIES)}
    merged = []
    for key in sorted(found, key=lambda key: (rank[key[0]], key[1])):
        number, sources, occurrences = found[key]
        places = tuple(Source(**source) for source in sources)
        merged.append(given[number].with_changes(sources=places, occurrences=occurrences))
    return UniqueResult(tuple(merged), duplicates)


_MERGED = "SELECT category, variant_hash, file_row_number, sources, occurrences FROM merged"


def _merge(engine: Engine, relation: str) -> Counter[str]:
    """Makes the table `merged`: of each variant the row to keep, its sources and occurrences."""
    engine.run(_MERGE.format(relation=relation))
    counts = engine.run("SELECT category, sum(rows - 1)::BIGINT FROM merged GROUP BY ALL ORDER BY ALL")
    return Counter({category: count for category, count in counts if count})

"""Each variant once: duplicates merge, and the row says how often and where it stood.

Variants of one category with the same variant hash merge. What the hash leaves out (roles, ranges, kernels) comes
from the variant whose source is first by model, start and end. Occurrences are summed. The order in which variants
come, and the files and batches in which they come, do not matter.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from dedup.database import Engine, parquet
from dedup.rows import write
from storage.schema import CATEGORIES, SUBGRAPHS

MAX_SOURCES = 16
"""Sources that a variant keeps: the first in order of model, start and end. `occurrences` counts them all."""

ROWS_AT_ONCE = 50_000
"""Rows that are merged in one query, about: those whose hashes begin alike. DuckDB holds the sources of all groups of a
query in memory; those of the variants of 1,985 models were more than its GiB."""

_NARROW = """
CREATE OR REPLACE TABLE narrow AS
SELECT category, variant_hash, occurrences, model, "start", "end", tie, filename, file_row_number, sources
FROM {relation}
"""

_MERGE = f"""
WITH firsts AS (
    SELECT category, variant_hash, sum(occurrences)::BIGINT AS occurrences, count(*) AS rows,
        arg_min(struct_pack(filename, file_row_number), struct_pack(model, "start", "end", tie)) AS first
    FROM narrow WHERE starts_with(variant_hash, '{{prefix}}') GROUP BY ALL
), places AS (
    SELECT category, variant_hash, min(source, {MAX_SOURCES}) AS sources
    FROM (
        SELECT DISTINCT category, variant_hash, unnest(sources) AS source
        FROM narrow WHERE starts_with(variant_hash, '{{prefix}}')
    ) GROUP BY ALL
)
SELECT firsts.* EXCLUDE (first), first.filename, first.file_row_number, coalesce(sources, []) AS sources
FROM firsts LEFT JOIN places USING (category, variant_hash)
"""

_IN_ORDER = f"""
SELECT {", ".join(f'{"merged" if n in ("sources", "occurrences") else "given"}."{n}"' for n in SUBGRAPHS.names)}
FROM {{relation}} AS given JOIN merged USING (filename, file_row_number)
WHERE merged.category = $category ORDER BY merged.variant_hash
"""


def unique_paths(directory: Path) -> dict[str, Path]:
    """The files of `unique_files` below a directory, by category."""
    return {category: directory / f"{category}.parquet" for category in CATEGORIES}


def unique_files(
    engine: Engine,
    paths: Sequence[Path],
    directory: Path,
    group_rows: int = 1000,
    summary: Mapping[str, Any] | None = None,
    relation: str | None = None,
    at_once: int = ROWS_AT_ONCE,
) -> dict[str, Path]:
    """Merges the variants in files of `dedup.rows` into a file a category below `directory`, ordered by hash.

    `relation` gives the rows of the files where they are not as they stand there; it keeps `filename` and
    `file_row_number`. The summary of a file is `summary` with its `duplicates`, rows that merged into another. Row
    groups have `group_rows` rows, the last one fewer. Memory is that of the engine, which sorts through files, and of
    one row group; `at_once` bounds what the engine merges in one query.
    """
    files = unique_paths(directory)
    given = relation or parquet(paths)
    duplicates = _merge(engine, given, at_once) if paths else Counter()
    for category, file in files.items():
        in_order = _IN_ORDER.format(relation=given) if paths else ""
        rows = engine.stream(in_order, SUBGRAPHS, {"category": category}) if paths else ()
        write(file, rows, SUBGRAPHS, {**(summary or {}), "duplicates": duplicates[category]}, group_rows)
    return files


_COUNTS = """
SELECT coalesce(category, 'all'), count(DISTINCT md5(code)), count(DISTINCT graph_hash), count(DISTINCT family_hash),
    count(DISTINCT variant_hash)
FROM {relation} GROUP BY GROUPING SETS ((category), ()) ORDER BY ALL
"""


def unique_counts(engine: Engine, paths: Sequence[Path]) -> dict[str, dict[str, int]]:
    """How many different subgraphs files of unique variants hold, by each of `NOTIONS`, in each category and in "all".

    `text`: the source that is stored, in which sizes may be constants. `graph`: ops, wiring and all constants.
    `family`: ops and wiring alone. `with_shapes`: the graph with dtypes, shapes and strides of its inputs.
    """
    rows = engine.run(_COUNTS.format(relation=parquet(paths)))
    counts = {name: dict(zip(NOTIONS, found, strict=True)) for name, *found in rows}
    return {name: counts[name] for name in (*CATEGORIES, "all") if name in counts}


NOTIONS = ("text", "graph", "family", "with_shapes")
"""What `unique_counts` counts."""


def _prefixes(rows: int, at_once: int) -> list[str]:
    """What hashes may begin with, in order, so that no more than about `at_once` of so many rows begin alike."""
    digits = 0
    while rows > at_once * 16**digits:
        digits += 1
    return ["".join(each) for each in product("0123456789abcdef", repeat=digits)]


def _merge(engine: Engine, relation: str, at_once: int) -> Counter[str]:
    """Makes the table `merged`: of each variant the row to keep, its sources and occurrences."""
    engine.run(_NARROW.format(relation=relation))
    ((rows,),) = engine.run("SELECT count(*) FROM narrow")
    for number, prefix in enumerate(_prefixes(rows, at_once)):
        into = "INSERT INTO merged" if number else "CREATE OR REPLACE TABLE merged AS"
        engine.run(into + _MERGE.format(prefix=prefix))
    engine.run("DROP TABLE narrow")
    counts = engine.run("SELECT category, sum(rows - 1)::BIGINT FROM merged GROUP BY ALL ORDER BY ALL")
    return Counter({category: count for category, count in counts if count})

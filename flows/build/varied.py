"""Variants that are there already: earlier builds varied most subgraphs of a catalogue that has grown.

A file of varied subgraphs says which subgraphs it is of, by their content keys (`dedup.rows.content_key`). A build
varies the subgraphs that no file has, and takes the variants of the others with the places where it found them itself.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dedup.database import parquet
from dedup.rows import PLACE, content_key, stream, write
from storage.parquet import parquet_summary
from storage.schema import SUBGRAPHS

PLACES = pa.schema(
    [
        ("key", pa.string()),
        ("file", pa.string()),
        *(SUBGRAPHS.field(name) for name in ("sources", "occurrences")),
        *(field for field in PLACE if field.name != "tie"),
    ]
)
"""Of each subgraph of a build: its content key, the file that has its variants, and where it was found."""

_RELATION = """(
SELECT varied.* EXCLUDE (subgraph) REPLACE (
    places.sources AS sources, places.occurrences AS occurrences, places.model AS model, places."start" AS "start",
    places."end" AS "end"
) FROM {varied} AS varied JOIN {places} AS places
ON varied.subgraph = places.key AND varied.filename = places.file
)"""


@dataclass(frozen=True)
class Wanted:
    """The subgraphs of a build: content keys of the rows of each row group of each file."""

    groups: dict[tuple[Path, int], list[str]]

    @property
    def keys(self) -> set[str]:
        """All content keys."""
        return {key for keys in self.groups.values() for key in keys}


def wanted(files: Sequence[Path]) -> Wanted:
    """The subgraphs in files of unique ones."""
    groups = {}
    for path in files:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                groups[path, group] = [content_key(row) for row in file.read_row_group(group).to_pylist()]
    return Wanted(groups)


def held(files: Sequence[Path]) -> dict[str, tuple[Path, Counter[str]]]:
    """Content key → the file that has the subgraph's variants, and what was dropped of it, by cause."""
    found: dict[str, tuple[Path, Counter[str]]] = {}
    for path in sorted(files):
        for key, dropped in parquet_summary(path)["subgraphs"].items():
            found.setdefault(key, (path, Counter(dropped)))
    return found


def relation(given: Wanted, holding: Mapping[str, tuple[Path, Counter[str]]], places: Path) -> tuple[str, list[Path]]:
    """The variants of these subgraphs as a relation with this build's places, and the files that they are in.

    Subgraphs that no file has are left out. Writes the file `places`.
    """
    write(places, _places(given, holding), PLACES, {})
    files = sorted({holding[key][0] for key in given.keys & holding.keys()})
    return _RELATION.format(varied=parquet(files), places=parquet([places])), files


def _places(given: Wanted, holding: Mapping[str, tuple[Path, Counter[str]]]) -> Iterator[pa.RecordBatch]:
    for path in dict.fromkeys(path for path, _ in given.groups):
        keys = iter([key for (of, _), keys in given.groups.items() if of == path for key in keys])
        for batch in stream(path, ["sources", "occurrences"]):
            rows = []
            for row in batch.to_pylist():
                key = next(keys)
                if key not in holding:
                    continue
                first = min(((s["model"], s["start"], s["end"]) for s in row["sources"]), default=("", -1, -1))
                place = dict(zip(("model", "start", "end"), first, strict=True))
                rows.append({"key": key, "file": str(holding[key][0]), **row, **place})
            yield pa.RecordBatch.from_pylist(rows, PLACES)

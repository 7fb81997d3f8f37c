"""A directory of demonstrations that `load_dataset` and `agent.learning.sft` read: a card, and a file a split."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.disk import disk_error, filling
from storage.errors import PassNetError
from storage.parquet import write_parquet

CONFIG = "demonstrations"
_GROUP = 64  # rows
_HEAD = """\
---
license: apache-2.0
pretty_name: {name}
tags: [triton, compiler, code]
configs:
- config_name: {config}
  data_files:
{files}
---
# {name}

"""


def write_dataset(
    out: Path, name: str, text: str, splits: Mapping[str, Sequence[Mapping[str, Any]]], schema: pa.Schema
) -> None:
    """Write the rows of each split that has some to the new directory `out`, with a card of this name and text.

    Raises PassNetError if `out` is there or cannot be written.
    """
    if out.exists():
        raise PassNetError(f"{out} exists already: give a new directory")
    kept = {split: rows for split, rows in splits.items() if rows}
    files = "\n".join(f"  - split: {split}\n    path: data/{CONFIG}/{split}-*.parquet" for split in kept)
    try:
        with filling(out) as place:
            for split, rows in kept.items():
                path = place / "data" / CONFIG / f"{split}-00000-of-00001.parquet"
                write_parquet(path, _groups(rows, schema), schema, elsewhere="another --out")
            card = _HEAD.format(name=name, config=CONFIG, files=files) + text
            (place / "README.md").write_text(card, "utf-8")
    except OSError as error:
        raise disk_error(error, out, "another --out") from error


def _groups(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.Table]:
    for start in range(0, len(rows), _GROUP):
        yield pa.Table.from_pylist(list(rows[start : start + _GROUP]), schema)


def read_dataset(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each split of such a directory.

    `load_dataset` gives the rows of whichever directory of the same name it has loaded first, on this machine: it keeps
    them by name and config. Raises PassNetError where there are none.
    """
    files = sorted((directory / "data" / CONFIG).glob("*-*-of-*.parquet"))
    if not files:
        raise PassNetError(f"{directory} has no demonstrations: `passnet demonstrations --out {directory}`")
    splits: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        splits.setdefault(file.name.partition("-")[0], []).extend(pq.read_table(file).to_pylist())
    return splits

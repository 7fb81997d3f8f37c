"""A directory of demonstrations that `load_dataset` and `agent.learning.sft` read: a card, and a file a split."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from storage.disk import disk_error, filling
from storage.errors import PassNetError
from storage.parquet import read_rows, write_parquet
from storage.versions.shards import file_sha256

CONFIG = "demonstrations"
_GROUP = 64  # rows
_HEAD = """\
---
license: apache-2.0
pretty_name: {name}
tags: [triton, compiler, code]
configs:
- config_name: {config}
  description: contents {contents}
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
            digest = hashlib.sha256()
            for split, rows in kept.items():
                path = place / "data" / CONFIG / f"{split}-00000-of-00001.parquet"
                write_parquet(path, _groups(rows, schema), schema, elsewhere="another --out")
                digest.update(file_sha256(path).encode())
            # `datasets` would take another directory of the same name for this one, but for the digest in its card
            head = _HEAD.format(name=name, config=CONFIG, files=files, contents=digest.hexdigest()[:16])
            (place / "README.md").write_text(head + text, "utf-8")
    except OSError as error:
        raise disk_error(error, out, "another --out") from error


def _groups(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> Iterator[pa.Table]:
    for start in range(0, len(rows), _GROUP):
        yield pa.Table.from_pylist(list(rows[start : start + _GROUP]), schema)


def read_dataset(directory: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each split of such a directory, as they are now.

    `load_dataset` keeps what it has loaded by a directory's name and card. Raises PassNetError where there are none, or
    a file is corrupt.
    """
    files = sorted((directory / "data" / CONFIG).glob("*-*-of-*.parquet"))
    if not files:
        raise PassNetError(f"{directory} has no demonstrations: `passnet demonstrations --out {directory}`")
    splits: dict[str, list[dict[str, Any]]] = {}
    for file in files:
        splits.setdefault(file.name.partition("-")[0], []).extend(read_rows(file))
    return splits

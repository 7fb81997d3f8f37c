"""The repeated sequences that a build found (`extraction.cutting.typical.Repeats`) as a file for the next build."""

import hashlib
from pathlib import Path

import pyarrow as pa

from extraction.cutting.typical import Repeat, Repeats
from storage.parquet import parquet_summary, read_rows, write_parquet
from storage.versions.version import Version

FOUND = pa.schema([("text", pa.string()), ("starts", pa.list_(pa.int32())), ("ends", pa.list_(pa.int32()))])
"""Of each text, by its digest, where its sequences start and end."""


def write_repeats(directory: Path, repeats: Repeats) -> str:
    """Write a file below a directory, unless it is there; its name, which says what is in it."""
    rows = [
        {"text": text, "starts": [each.start for each in found], "ends": [each.end for each in found]}
        for text, found in sorted(repeats.found.items())
    ]
    name = hashlib.sha256(repr((repeats.names, repeats.rules, rows)).encode()).hexdigest()[:20]
    path = _path(directory, name)
    if not path.exists():
        table = pa.Table.from_pylist(rows, FOUND)
        write_parquet(path, [table], FOUND, {"names": repeats.names, "rules": repeats.rules})
    return name


def read_repeats(directory: Path, name: str) -> Repeats:
    """What `write_repeats` wrote. Raises PassNetError if the file is corrupt."""
    path = _path(directory, name)
    told = parquet_summary(path)
    found = {row["text"]: list(map(Repeat, row["starts"], row["ends"])) for row in read_rows(path, FOUND)}
    return Repeats(tuple(told["names"]), tuple((left, right) for left, right in told["rules"]), found)


def repeats_built(version: Version | None, directory: Path) -> str:
    """The name of the file of what the build of a version found; "" where there is none, or it was of other code."""
    if version is None:
        return ""
    manifest = version.manifest
    built = manifest.built or {"parameters": manifest.parameters}
    name = built["parameters"].get("repeats", "")
    return name if name and _path(directory, name).exists() else ""


def _path(directory: Path, name: str) -> Path:
    return directory / f"{name}.parquet"

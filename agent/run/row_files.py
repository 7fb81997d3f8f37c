"""Files of finished work: a table's rows in one Parquet file, which appears whole or not at all."""

import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from storage.errors import PassNetError


def write_rows(path: Path, rows: list[dict], schema: pa.Schema) -> None:
    """Write the rows; directories are made. Raises PassNetError where the disk refuses them."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema), partial, compression="zstd")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise PassNetError(
            f"cannot write {path}: {error.strerror or error}; free some space or choose another directory"
        ) from error


def read_rows(path: Path, schema: pa.Schema) -> list[dict]:
    """The rows of a file. Raises PassNetError that names the file if it is corrupt."""
    try:
        return pq.read_table(path, schema=schema).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise PassNetError(f"{path} is corrupt ({str(error).splitlines()[0]}): delete it and run again") from error

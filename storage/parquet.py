"""The one writer of Parquet files: zstd, page checksums, and a file that is there whole and on the disk or not at all.

Whatever writes Parquet in PassNet writes it here, so that a file that exists marks its work as done.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from storage.disk import appearing, check_regular, disk_error
from storage.errors import PassNetError

_SUMMARY = "summary"


class ParquetSink:
    """An open Parquet file: what `parquet_sink` gives."""

    def __init__(self, file: pa.NativeFile, writer: pq.ParquetWriter) -> None:
        self._file, self._writer = file, writer
        self.rows = 0

    @property
    def bytes(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def write(self, group: pa.Table) -> None:
        """One row group; its schema is the file's."""
        self._writer.write_table(group, row_group_size=max(1, len(group)))
        self.rows += len(group)

    def describe(self, summary: Mapping[str, Any]) -> None:
        """Keep JSON data with the file; `parquet_summary` reads it."""
        self._writer.add_key_value_metadata({_SUMMARY: json.dumps(dict(summary))})


@contextmanager
def parquet_sink(path: Path, schema: pa.Schema) -> Iterator[ParquetSink]:
    """A file to write row group by row group; `path` appears at the end, or not at all if anything is raised.

    Equal rows in equal groups give equal bytes. Raises OSError as the disk does.
    """
    with (
        appearing(path) as partial,
        pa.OSFile(str(partial), "wb") as file,
        pq.ParquetWriter(file, schema, compression="zstd", version="2.6", write_page_checksum=True) as writer,
    ):
        yield ParquetSink(file, writer)


def write_parquet(
    path: Path,
    groups: Iterable[pa.Table],
    schema: pa.Schema,
    summary: Mapping[str, Any] | None = None,
    elsewhere: str = "another --data",
) -> int:
    """Write row groups as a file; returns the number of rows.

    `summary` (JSON data, which may be filled while `groups` is consumed) goes with it. Raises PassNetError if the file
    cannot be written; its advice names `elsewhere` as the place to write to instead.
    """
    try:
        with parquet_sink(path, schema) as sink:
            for group in groups:
                sink.write(group)
            if summary is not None:
                sink.describe(summary)
            return sink.rows
    except OSError as error:
        raise disk_error(error, path, elsewhere) from error


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Write rows (dictionaries) as a file of one row group. Raises PassNetError if it cannot be written."""
    write_parquet(path, [pa.Table.from_pylist(list(rows), schema)], schema)


def read_rows(path: Path, schema: pa.Schema | None = None) -> list[dict[str, Any]]:
    """The rows of a file of `write_rows`, with the columns that it has where no schema is given. Raises PassNetError
    that names the file if it is corrupt."""
    try:
        check_regular(path)
        return pq.read_table(path, schema=schema).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise corrupt(path, error) from error


def parquet_summary(path: Path) -> dict[str, Any]:
    """The summary that a file was written with. Raises PassNetError if the file is corrupt or has none."""
    try:
        return json.loads(pq.read_metadata(path).metadata[_SUMMARY.encode()])
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:
        raise corrupt(path, error) from error


def corrupt(path: Path, error: Exception) -> PassNetError:
    """What to tell a user of a file of finished work that cannot be read."""
    return PassNetError(f"{path} is corrupt ({str(error).splitlines()[0]}): delete it and run again")

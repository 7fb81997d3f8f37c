"""Rows in the order of their hashes, more of them than fit in memory: a bucket sort through files.

The keys are hashes, so equal ranges of them hold about equally many rows. Each range goes to a file of its own, which
is small enough to be sorted in memory.
"""

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

BUCKET_ROWS = 10_000
"""Rows of a bucket, about: what is sorted in memory at a time."""
MAX_BUCKETS = 128
"""Files that are open at a time."""
_DIGITS = 4


class Sorter:
    """Takes tables of one schema with a column of hexadecimal keys, and gives the rows back in order of their keys."""

    def __init__(self, directory: Path, schema: pa.Schema, key: str, rows: int) -> None:
        """`directory` is for the buckets; `rows` is how many rows to expect, which sets their number."""
        self.key, self.schema = key, schema
        self.count = min(MAX_BUCKETS, max(1, math.ceil(rows / BUCKET_ROWS)))
        directory.mkdir(parents=True, exist_ok=True)
        self.paths = [directory / f"{number:04}.arrow" for number in range(self.count)]
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self.writers = [pa.ipc.new_file(path, schema, options=options) for path in self.paths]

    def add(self, table: pa.Table) -> None:
        """Some more rows; the more at a time, the fewer pieces a bucket has."""
        keys = table.column(self.key).to_pylist()
        buckets = np.array([int(key[:_DIGITS], 16) for key in keys], np.int64) * self.count >> 4 * _DIGITS
        for number in np.unique(buckets):
            self.writers[number].write_table(table.take(np.flatnonzero(buckets == number)).combine_chunks())

    def ordered(self) -> Iterator[pa.RecordBatch]:
        """All rows in order of their keys. The buckets are removed on the way."""
        for writer in self.writers:
            writer.close()
        for path in self.paths:
            with pa.OSFile(str(path)) as file:
                table = pa.ipc.open_file(file).read_all()
            path.unlink()
            yield from table.sort_by(self.key).combine_chunks().to_batches()

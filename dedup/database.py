"""The database engine that merges and groups a corpus: DuckDB, with bounded memory, over Parquet files.

What does not fit in memory goes to files below `scratch`. Every query of this room orders what it returns by a key
that no two rows share, so threads and the order of files make no difference.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import duckdb
import pyarrow as pa

MEMORY_MB = 1024
"""Memory that the engine may take for its tables and queries, in MiB; what it hands out comes on top."""


class Engine:
    """One connection; use it as a context manager. DuckDB's errors are raised as they are, that of a full disk too."""

    def __init__(self, scratch: Path | None = None, memory_mb: int = MEMORY_MB, threads: int | None = None) -> None:
        """`scratch` is a directory for tables and spilled queries; None keeps all in memory, for small inputs."""
        config: dict[str, Any] = {
            "memory_limit": f"{memory_mb}MiB",
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,  # nothing is fetched or loaded behind our back
            "autoload_known_extensions": False,
            "temp_directory": "" if scratch is None else str(scratch / "spill"),
        }
        if threads is not None or scratch is None:
            config["threads"] = threads or 1
        place = ":memory:"
        if scratch is not None:
            scratch.mkdir(parents=True, exist_ok=True)
            place = str(scratch / "engine.duckdb")
            for left in scratch.glob("engine.duckdb*"):  # of a build that was killed
                left.unlink()
        self.connection = duckdb.connect(place, config=config)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def run(self, sql: str, parameters: Mapping[str, Any] | None = None) -> list[tuple]:
        """Run a statement; its rows. `$name` in the statement stands for a parameter."""
        return self.connection.execute(sql, dict(parameters or {})).fetchall()

    def stream(
        self, sql: str, schema: pa.Schema, parameters: Mapping[str, Any] | None = None, size: int = 1000
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a query as batches of at most `size` rows, the columns of `schema` alone."""
        for batch in self.connection.cursor().sql(sql, params=dict(parameters or {})).to_arrow_reader(size):
            table = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
            yield from table.combine_chunks().to_batches(size)

    def table(self, name: str, rows: pa.Table | pa.RecordBatchReader) -> None:
        """Make a table of Arrow rows, replacing one of that name."""
        self.connection.register("incoming", rows)
        self.connection.execute(f"CREATE OR REPLACE TABLE {name} AS FROM incoming")
        self.connection.unregister("incoming")


def parquet(paths: Sequence[Path]) -> str:
    """The rows of Parquet files as a relation, each with its `filename` and `file_row_number`.

    A path means the file of that name, whatever is in it. By itself DuckDB takes `[1]` for a pattern, and a directory
    called `model=3` for a column `model`, in place of the file's own.
    """
    listed = ", ".join(map(_quoted, paths))
    return f"read_parquet([{listed}], filename = true, file_row_number = true, hive_partitioning = false)"


def _quoted(path: Path) -> str:
    return "'" + re.sub(r"[*?\[]", r"[\g<0>]", str(path)).replace("'", "''") + "'"

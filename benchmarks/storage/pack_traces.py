"""Pack the traces of a directory into fewer files that compress better, for traces that are to be committed.

    python3 -m benchmarks.storage.pack_traces --traces DIR/traces --out OUT [--models 64]

Models are sorted by name, so that like ones share a file. A model that several files hold is left to the first file in
which it is traced. Rows stay as they are; the new files are found as the old ones were.
"""

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from extraction.sources.spec import TRACE_VERSION
from extraction.tracing.trace_files import TRACES


def main(given: Sequence[str] | None = None) -> None:
    """Pack the traces of the directory that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--models", type=int, default=64, help="models in a file")
    options = parser.parse_args(given)
    files = sorted((options.traces / f"t{TRACE_VERSION}").glob("*.parquet"))
    table = once_each(pa.concat_tables([pq.read_table(file, schema=TRACES) for file in files]))
    place = options.out / f"t{TRACE_VERSION}"
    place.mkdir(parents=True, exist_ok=True)
    for start in range(0, table.num_rows, options.models):
        part = table.slice(start, options.models)
        name = hashlib.sha256("\n".join(part["model"].to_pylist()).encode()).hexdigest()[:20]
        pq.write_table(
            part, place / f"{name}.parquet", compression="brotli", compression_level=11, use_dictionary=False
        )
    print(f"{table.num_rows} models of {len(files)} files in {place}")


def once_each(table: pa.Table) -> pa.Table:
    """Each model's first traced row, or its first row where none is traced; in the order of names."""
    rows = zip(table["model"].to_pylist(), table["status"].to_pylist(), range(table.num_rows), strict=True)
    first: dict[str, int] = {}
    for model, _, number in sorted(rows, key=lambda row: (row[0], row[1] != "traced", row[2])):
        first.setdefault(model, number)
    return table.take(list(first.values()))


if __name__ == "__main__":
    main()

"""What a worker does with one shard of an import: reads sample directories into a file of rows.

It runs in killable processes (`extraction.pool.client`), so this module imports no Prefect. Directories are parsed, and
their graphs propagated on fake tensors; nothing of them is executed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dedup.hashes import identify
from dedup.rows import ROWS, batches, write
from extraction.sources.graph_directories import read_variant
from storage.layout.errors import LayoutError
from storage.layout.read import graph_directory, graph_paths
from storage.records import Variant


def import_shard(payload: dict[str, Any]) -> Iterator[dict[str, int]]:
    """The variants in some sample directories; the summary has a record of each sample, see `new_record`.

    Payload: `root`, `samples` (paths relative to it) and `out`.
    """
    root = Path(payload["root"])
    records = [new_record(sample) for sample in payload["samples"]]
    found = (identify(variant) for record in records for variant in read_sample(root, record))
    yield {"rows": write(Path(payload["out"]), batches(found), ROWS, {"samples": records})}


def new_record(sample: str) -> dict[str, Any]:
    """What came of a sample: graphs and ops that were read, and (path, cause, message) of each failure."""
    return {"sample": sample, "graphs": 0, "ops": 0, "failures": []}


def read_sample(root: Path, record: dict[str, Any]) -> Iterator[Variant]:
    """The variants of one sample, as they are read; what cannot be read goes to the record."""
    sample = root / record["sample"]
    try:
        paths = graph_paths(sample)
    except LayoutError as error:
        record["failures"].append((record["sample"], error.cause, _relative(error, root)))
        return
    for path in paths:
        try:
            variant = read_variant(graph_directory(sample, path), root, f"dir:{record['sample']}/{path}")
        except LayoutError as error:
            record["failures"].append((f"{record['sample']}/{path}", error.cause, _relative(error, root)))
            continue
        record["graphs"] += 1
        record["ops"] += len(variant.graph.ops)
        yield variant


def _relative(error: LayoutError, root: Path) -> str:
    return str(error).replace(f"{root}/", "")


def prepare() -> None:
    """Imports what propagating needs, so that every worker starts with it."""
    import extraction.analysis.plausible_inputs
    import extraction.analysis.propagate  # noqa: F401

"""Which traces a catalogue's models have: their rows of `models`, and where their graphs are, without reading those."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from extraction.catalog import Entry
from extraction.failures import ModelError
from extraction.spec import Spec, spec_of
from extraction.trace_store import TraceStore
from extraction.workers import failed_row
from storage.errors import PassNetError
from storage.schema import MODELS


@dataclass(frozen=True)
class Traced:
    """`models` has a row for each entry of a catalogue. `files` are the traces that hold graphs of them: path → the
    name of a model there → its name in the catalogue; `graphs` counts those."""

    models: list[dict[str, Any]]
    files: dict[Path, dict[str, str]]
    graphs: int


def find_traces(traces: TraceStore, entries: Sequence[Entry]) -> Traced:
    """The traces of a catalogue. Entries that share a spec share its graphs, which bear the first one's name.

    Raises PassNetError if a file is corrupt, or an entry is not traced.
    """
    specs = [_spec(entry) for entry in entries]
    wanted = {spec.trace_key for spec in specs if isinstance(spec, Spec)}
    rows: dict[str, tuple[Path, dict[str, Any]]] = {}
    for path in sorted(traces.directory.glob("*.parquet")):
        for row in _rows(path):
            key = Spec(
                row["source"], row["spec"], row["config_hash"], tuple(sorted(row["libraries"].items()))
            ).trace_key
            if key in wanted:
                rows[key] = path, row
    models: list[dict[str, Any]] = []
    files: dict[Path, dict[str, str]] = {}
    first: dict[str, str] = {}
    graphs = 0
    for entry, spec in zip(entries, specs, strict=True):
        if isinstance(spec, ModelError):
            models.append(failed_row(entry, None, spec.category, str(spec), 0.0))
            continue
        key = spec.trace_key
        if key not in rows:
            raise PassNetError(f"{entry.text} has no trace in {traces.directory}; run the build again")
        path, row = rows[key]
        if key not in first:
            first[key] = entry.text
            graphs += row["graphs"]
            if row["graphs"]:
                files.setdefault(path, {})[row["model"]] = entry.text
        elif row["status"] == "traced":
            row = {**row, "message": f"shares the trace of {first[key]}", "seconds": 0.0}
        models.append({**row, "model": entry.text, "source": entry.source, "revision": entry.revision})
    return Traced(models, files, graphs)


def _spec(entry: Entry) -> Spec | ModelError:
    try:
        return spec_of(entry)
    except ModelError as error:
        return error


def _rows(path: Path) -> list[dict[str, Any]]:
    try:
        rows = pq.read_table(path, columns=MODELS.names).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise PassNetError(f"{path} is corrupt ({str(error).splitlines()[0]}): delete it and build again") from error
    maps = [field.name for field in MODELS if pa.types.is_map(field.type)]
    return [{**row, **{name: dict(row[name] or ()) for name in maps}} for row in rows]

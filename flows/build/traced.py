"""Which traces a catalogue's models have: their rows of `models`, and where their graphs are, without reading those."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extraction.failures import ModelError
from extraction.sources.spec import Spec, Specified
from extraction.tracing.trace_store import TraceStore
from extraction.tracing.trace_workers import failed_row
from storage.errors import PassNetError


@dataclass(frozen=True)
class Traced:
    """`models` has a row for each entry of a catalogue. `files` are the traces that hold graphs of them: path → the
    name of a model there → its name in the catalogue; `graphs` counts those."""

    models: list[dict[str, Any]]
    files: dict[Path, dict[str, str]]
    graphs: int


def find_traces(traces: TraceStore, entries: Specified) -> Traced:
    """The traces of a catalogue. Entries that share a spec share its graphs, which bear the first one's name.

    Raises PassNetError if a file is corrupt, or an entry is not traced.
    """
    records = traces.find({spec.trace_key for spec in entries.values() if isinstance(spec, Spec)})
    models: list[dict[str, Any]] = []
    files: dict[Path, dict[str, str]] = {}
    first: dict[str, str] = {}
    graphs = 0
    for entry, spec in entries.items():
        if isinstance(spec, ModelError):
            models.append(failed_row(entry, None, spec.category, str(spec), 0.0))
            continue
        key = spec.trace_key
        if key not in records:
            raise PassNetError(f"{entry.text} has no trace in {traces.directory}; run the build again")
        path, row = records[key].path, records[key].row
        if key not in first:
            first[key] = entry.text
            graphs += row["graphs"]
            if row["graphs"]:
                files.setdefault(path, {})[row["model"]] = entry.text
        elif row["status"] == "traced":
            row = {**row, "message": f"shares the trace of {first[key]}", "seconds": 0.0}
        models.append({**row, "model": entry.text, "source": entry.source, "revision": entry.revision})
    return Traced(models, files, graphs)

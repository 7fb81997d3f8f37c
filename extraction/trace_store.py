"""Finished traces of a data directory: which specs are traced, and what came of them.

DIR/t<TRACE_VERSION>/<sha256 of the shard's trace keys>.parquet, each written whole by one shard of work. A model is
found by its trace key (config, library versions), whatever catalogue it was traced for.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from extraction.catalog import Entry
from extraction.failures import ModelError
from extraction.spec import TRACE_VERSION, Spec, spec_of
from extraction.traces import Outcome, read_traces, write_traces
from extraction.workers import failed_row
from storage.errors import PassNetError
from storage.records import TracedGraph


class TraceStore:
    """The traces below a directory, which is made when the first ones are added."""

    def __init__(self, root: Path) -> None:
        self.directory = root / f"t{TRACE_VERSION}"

    def missing(self, entries: Sequence[Entry]) -> list[Entry]:
        """One entry for each spec that is not traced yet, in the order given; entries without a spec need no trace."""
        known = self._files()
        wanted: dict[str, Entry] = {}
        for entry in entries:
            spec = _spec(entry)
            if isinstance(spec, Spec) and spec.trace_key not in known:
                wanted.setdefault(spec.trace_key, entry)
        return list(wanted.values())

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Keep the outcomes of one shard. Raises PassNetError if they cannot be written."""
        keys = sorted(_key(outcome.row) for outcome in outcomes)
        name = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:20]
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PassNetError(f"cannot make {self.directory}: {error.strerror}; choose another --data") from error
        write_traces(self.directory / f"{name}.parquet", outcomes)

    def load(self, entries: Sequence[Entry]) -> tuple[list[dict[str, Any]], list[TracedGraph]]:
        """A row of the `models` table for each entry, and the graphs of their specs, in the entries' order.

        Entries that share a spec share its graphs, which bear the first one's name.
        Raises PassNetError if a file is corrupt, or an entry is not traced.
        """
        files = self._files()
        specs = [_spec(entry) for entry in entries]
        keys = {spec.trace_key for spec in specs if isinstance(spec, Spec)}
        rows: dict[str, dict] = {}
        graphs: dict[str, list[TracedGraph]] = {}
        for path in sorted({files[key] for key in keys if key in files}):
            models, traced = read_traces(path)
            names = {row["model"]: _key(row) for row in models}
            rows |= {_key(row): row for row in models if _key(row) in keys}
            for graph in traced:
                graphs.setdefault(names[graph.model], []).append(graph)
        models, first = [], {}
        for entry, spec in zip(entries, specs, strict=True):
            if isinstance(spec, ModelError):
                models.append(failed_row(entry, None, spec.category, str(spec), 0.0))
                continue
            key = spec.trace_key
            if key not in rows:
                raise PassNetError(f"{entry.text} has no trace in {self.directory}; run the build again")
            row = {**rows[key], "model": entry.text, "source": entry.source, "revision": entry.revision}
            if key in first and row["status"] == "traced":
                row |= {"message": f"shares the trace of {first[key]}", "seconds": 0.0}
            first.setdefault(key, entry.text)
            models.append(row)
        return models, [replace(g, model=name) for key, name in first.items() for g in graphs.get(key, [])]

    def _files(self) -> dict[str, Path]:
        """Trace key → file."""
        files = {}
        for path in sorted(self.directory.glob("*.parquet")):
            try:
                rows = pq.read_table(path, columns=["source", "spec", "config_hash", "libraries"]).to_pylist()
            except (OSError, pa.ArrowException) as error:
                raise PassNetError(f"{path} is corrupt ({error}): delete it and build again") from error
            files |= {_key(row): path for row in rows}
        return files


def _key(row: dict[str, Any]) -> str:
    libraries = tuple(sorted(dict(row["libraries"]).items()))
    return Spec(row["source"], row["spec"], row["config_hash"], libraries).trace_key


def _spec(entry: Entry) -> Spec | ModelError:
    try:
        return spec_of(entry)
    except ModelError as error:
        return error

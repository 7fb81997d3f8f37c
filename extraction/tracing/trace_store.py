"""Finished traces of a data directory: which specs are traced, and what came of them.

DIR/t<TRACE_VERSION>/<sha256 of the shard's trace keys>[.<try>].parquet, each written whole by one shard of work. A
model is found by its trace key (config, library versions), whatever catalogue it was traced for.

Where two files hold a key, a trace counts before a failure, then the later try, then the file whose name sorts last: so
a retry replaces failures without touching the file that it retries, and reading does not depend on clocks.
"""

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from extraction.sources.catalog import Entry
from extraction.sources.spec import TRACE_VERSION, Spec, Specified
from extraction.tracing.trace_files import TraceOutcome, write_traces
from storage.errors import PassNetError
from storage.schema import MODELS

_KEYED = ("source", "spec", "config_hash", "libraries")
_MAPS = tuple(field.name for field in MODELS if pa.types.is_map(field.type))


@dataclass(frozen=True, order=True)
class Held:
    """Where the record of a trace key is. The greatest of several counts."""

    traced: bool
    attempt: int
    path: Path
    category: str  # of the failure; "" if traced


@dataclass(frozen=True)
class TraceRecord:
    """The row of the `models` table that a file of traces has; its `model` names the row's graphs in that file."""

    path: Path
    row: dict[str, Any]


class TraceStore:
    """The traces below a directory, which is made when the first ones are added."""

    def __init__(self, root: Path) -> None:
        self.directory = root / f"t{TRACE_VERSION}"
        self._read: dict[Path, dict[str, Held]] = {}  # files never change once they are there

    def make(self) -> None:
        """Make the directory. Raises PassNetError if it cannot be made."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PassNetError(f"cannot make {self.directory}: {error.strerror}; choose another --data") from error

    @property
    def is_empty(self) -> bool:
        """Whether there is no trace at all."""
        return next(self.directory.glob("*.parquet"), None) is None

    def missing(self, entries: Specified, retry: Collection[str] = ()) -> dict[Entry, Spec]:
        """One entry for each spec that is not traced yet, in the order given; entries without a spec need no trace.

        `retry` has the categories of failures (`extraction.failures.CATEGORIES`) that count as not traced yet.
        """
        held = self._held()
        wanted: dict[str, tuple[Entry, Spec]] = {}
        for entry, spec in entries.items():
            if isinstance(spec, Spec):
                known = held.get(spec.trace_key)
                if known is None or known.category in retry:
                    wanted.setdefault(spec.trace_key, (entry, spec))
        return dict(wanted.values())

    def add(self, outcomes: Sequence[TraceOutcome]) -> None:
        """Keep the outcomes of one shard, beside earlier records of the same specs.

        Raises PassNetError if they cannot be written.
        """
        keys = sorted(_key(outcome.row) for outcome in outcomes)
        attempt = max((held.attempt + 1 for each in self._files().values() for key in keys if (held := each.get(key))),
                      default=0)  # fmt: skip
        name = hashlib.sha256("\n".join(keys).encode()).hexdigest()[:20] + (f".{attempt}" if attempt else "")
        self.make()
        write_traces(self.directory / f"{name}.parquet", outcomes)

    def find(self, keys: Collection[str]) -> dict[str, TraceRecord]:
        """The records of those of these trace keys that have one. Raises PassNetError if a file is corrupt."""
        held = self._held()
        where = {key: held[key].path for key in keys if key in held}
        found = {}
        for path in sorted(set(where.values())):
            for row in _rows(path, MODELS.names):
                key = _key(row)
                if where.get(key) == path:
                    found[key] = TraceRecord(path, {**row, **{name: dict(row[name] or ()) for name in _MAPS}})
        return found

    def _held(self) -> dict[str, Held]:
        """Trace key → the record that counts."""
        best: dict[str, Held] = {}
        for each in self._files().values():
            for key, held in each.items():
                best[key] = max(held, best.get(key, held))
        return best

    def _files(self) -> dict[Path, dict[str, Held]]:
        """File → trace key → its record there."""
        paths = sorted(self.directory.glob("*.parquet"))
        for path in paths:
            if path not in self._read:
                self._read[path] = {
                    _key(row): Held(row["status"] == "traced", _attempt(path), path, row["error_category"] or "")
                    for row in _rows(path, [*_KEYED, "status", "error_category"])
                }
        return {path: self._read[path] for path in paths}


def _attempt(path: Path) -> int:
    number = re.fullmatch(r"[0-9a-f]+\.(\d+)\.parquet", path.name)
    return int(number[1]) if number else 0


def _rows(path: Path, columns: list[str]) -> list[dict[str, Any]]:
    try:
        return pq.read_table(path, columns=columns).to_pylist()
    except (OSError, pa.ArrowException) as error:
        raise PassNetError(f"{path} is corrupt ({str(error).splitlines()[0]}): delete it and build again") from error


def _key(row: dict[str, Any]) -> str:
    libraries = tuple(sorted(dict(row["libraries"]).items()))
    return Spec(row["source"], row["spec"], row["config_hash"], libraries).trace_key

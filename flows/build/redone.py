"""What a build will trace again though it was traced before, and why: said before it is done."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from extraction.sources.catalog import Entry
from extraction.sources.spec import TRACE_VERSION, Spec

_COLUMNS = ["config_hash", "libraries", "status", "seconds"]


def redone(traces: Path, missing: Mapping[Entry, Spec]) -> list[str]:
    """Lines about models that are missing (`TraceStore.missing`) but were traced by other code or with other versions
    of libraries: how many, what has changed, and what tracing them took, in seconds of a worker each.

    `traces` is the directory of all trace stores. Nothing is said of failures that are tried again.
    """
    wanted = {spec.config_hash: spec for spec in missing.values()}
    if not wanted:
        return []
    before: dict[str, tuple[str, float]] = {}
    for path in sorted(traces.glob("t*/[!.]*.parquet"), key=lambda path: path.stat().st_mtime_ns):
        for row in pq.read_table(path, columns=_COLUMNS).to_pylist():
            spec = wanted.get(row["config_hash"])
            change = spec and row["status"] == "traced" and _change(path.parent.name, row, spec)
            if change:
                before[row["config_hash"]] = (change, row["seconds"])
    groups: dict[str, list[float]] = defaultdict(list)
    for change, seconds in before.values():
        groups[change].append(seconds)
    return [
        f"{len(seconds)} of them were traced before and are traced again, for {change}: that took {sum(seconds):.0f} s "
        "of workers' time; all of their subgraphs are cut and varied again"
        for change, seconds in sorted(groups.items())
    ]


def _change(directory: str, row: Mapping[str, Any], spec: Spec) -> str:
    """What is not as it was, in words."""
    then, now = dict(row["libraries"]), dict(spec.libraries)
    changes = [
        f"{name} is {now.get(name, 'gone')}, was {then.get(name, 'not there')}"
        for name in sorted(then.keys() | now.keys())
        if then.get(name) != now.get(name)
    ]
    if directory != f"t{TRACE_VERSION}":
        changes.append(f"the code of tracing is version {TRACE_VERSION}, was {directory.removeprefix('t')}")
    return ", ".join(changes)

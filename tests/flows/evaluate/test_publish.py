"""Rows of a new version of results: those of the earlier one and the new ones, in order, few at a time."""

import json
import tracemalloc
from pathlib import Path

import pyarrow as pa

from flows.evaluate_model import ORDER, publish
from storage.schema import RESULTS, SUBGRAPHS
from storage.versions.store import Store, Version
from tests.support.stores import NOTHING

PASS = "x = 1\n" * 10_000


def _row(run: str, number: int) -> dict:
    files = [{"path": "fuse.py", "content": f"# {run} {number}\n{PASS}"}]
    return {
        "run": run,
        "status": "ok",
        "sample": f"fusible-{number:04}",
        "variant_hash": f"{number:04}",
        "pass_files": files,
    }


def _published(data: Path, rows: list[dict]) -> Version:
    tables = {("results", "all"): pa.Table.from_pylist(rows, RESULTS), ("fusible", "eval"): SUBGRAPHS.empty_table()}
    return Store(data).publish(tables, kind="build", parent=None, **NOTHING)[0]


def _keys(version: Version) -> list[tuple]:
    return [tuple(row.get(column) for column in ORDER) for row in version.table("results").to_pylist()]


def test_runs_are_replaced_and_added_in_order(tmp_path: Path) -> None:
    earlier = _published(tmp_path, [_row(run, n) for run in ("a", "c") for n in range(3)])
    runs = {"b": [_row("b", n) for n in (2, 0, 1)], "c": [_row("c", 7)]}
    done = publish(Store(tmp_path), earlier, runs, [], {})
    found = _keys(done)
    assert found == sorted(found, key=json.dumps)
    assert [key[:2] for key in found] == [
        *(("a", f"fusible-{n:04}") for n in range(3)),
        *(("b", f"fusible-{n:04}") for n in range(3)),
        ("c", "fusible-0007"),
    ]
    assert publish(Store(tmp_path), earlier, runs, [], {}).name == done.name, "the same rows are no new version"


def test_earlier_results_are_not_held_in_memory(tmp_path: Path) -> None:
    earlier = _published(tmp_path, [_row("a", n) for n in range(600)])
    tracemalloc.start()
    try:
        publish(Store(tmp_path), earlier, {"b": [_row("b", 0)]}, [], {})
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 300 * len(PASS), f"{most / len(PASS):.0f} of 600 passes"

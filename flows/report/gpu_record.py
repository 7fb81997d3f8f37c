"""The committed record of a GPU, in a table: what `passnet quickstart` shows beside results that no GPU timed."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from flows.report.score_run import score_run
from storage.schema import CATEGORIES

RECORD = Path(__file__).resolve().parents[2] / "benchmarks" / "passbench" / "h200_one_run" / "results.parquet"
"""Samples of all categories that the offline author was not developed on. Its rows say hardware and versions."""


def gpu_record(path: Path = RECORD) -> dict[str, Any] | None:
    """The record's scores by the clock `e2e`, a line an author with its scores by category, best first, with hardware
    and versions of its rows.

    None where the records are not at hand, as in an installed wheel. Raises PassNetError if the file is damaged.
    """
    if not path.exists():
        return None
    scored = score_run([str(path)], Path("data"), clock="e2e", by="category")
    libraries = dict(pq.read_table(path, columns=["libraries"])["libraries"][0].as_py())
    lines = [
        {"author": run["author"], "AS": run["aggregate"], "categories": _by_category(run["groups"])}
        for run in sorted(scored["runs"], key=lambda run: -run["aggregate"])
    ]
    return {
        "path": str(Path(*path.parts[-4:])),
        "device": scored["runs"][0]["device"],
        "libraries": {name: libraries[name] for name in ("torch", "triton") if name in libraries},
        "lines": lines,
    }


def _by_category(groups: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {
        group["group"]: {
            "samples": group["samples"],
            "variants": group["n"],
            "correct": round(group["lam"] * group["n"]),
            "AS": group["aggregate"],
        }
        for group in groups
    }
    return {category: found[category] for category in CATEGORIES if category in found}

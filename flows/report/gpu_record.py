"""The committed record of a GPU, in a table: what `passnet quickstart` shows beside results that no GPU timed."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from flows.report.score_run import score_run

RECORD = Path(__file__).resolve().parents[2] / "benchmarks" / "agent" / "h200_distill" / "held_out_4.parquet"
"""154 fusible samples of models that the offline author was not developed on. Its rows say hardware and versions."""


def gpu_record(path: Path = RECORD) -> dict[str, Any] | None:
    """The record's scores by the clock `e2e`, a line an author, best first, with hardware and versions of its rows.

    None where the records are not at hand, as in an installed wheel. Raises PassNetError if the file is damaged.
    """
    if not path.exists():
        return None
    scored = score_run([str(path)], Path("data"), clock="e2e")
    libraries = dict(pq.read_table(path, columns=["libraries"])["libraries"][0].as_py())
    lines = [
        {
            "author": run["author"],
            "samples": run["samples"],
            "variants": run["n"],
            "speedup": run["geometric_mean_speedup"],
            "correct": round(run["lam"] * run["n"]),
            "AS": run["aggregate"],
        }
        for run in sorted(scored["runs"], key=lambda run: -run["aggregate"])
    ]
    return {
        "path": str(Path(*path.parts[-4:])),
        "device": scored["runs"][0]["device"],
        "libraries": {name: libraries[name] for name in ("torch", "triton") if name in libraries},
        "lines": lines,
    }

"""Passes on the GPU, some tasks at a time: the model's answers beside those of authors, for `from_scratch`."""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from passbench.bench import Bench
from passbench.contract import NAMES_FILE, write_pass_dir
from passbench.score import aggregate, geometric_mean, outcomes_of, score_table
from passbench.settings import Settings
from storage.records import Sample

TIMED = Settings(double=False, timing_budget=2.0, pairs=4, repeats=1, draws=3, call_timeout=10, first_call_timeout=30)
_TOGETHER = 6
"""Tasks whose passes are compiled at a time."""
_NOTHING = {NAMES_FILE: '["fuse"]\n'}


@dataclass(frozen=True)
class HandedIn:
    """What an author hands in for a sample: a compiler of PassBench, and for "pass" the files."""

    author: str
    compiler: str
    files: Mapping[str, str]


def timed(
    tasks: Sequence[tuple[Sample, Sequence[HandedIn]]], variants: int, seconds: float, device: str = "cuda:0"
) -> Iterator[dict[str, Any]]:
    """Summaries by author of the tasks until now, after each few tasks, in order; none is begun after `seconds`.

    Samples are timed in their first `variants` variants, as answers are judged.
    """
    end, rows, done = time.monotonic() + seconds, {}, 0
    with Bench(device, TIMED) as bench, tempfile.TemporaryDirectory() as place:
        for start in range(0, len(tasks), _TOGETHER):
            if time.monotonic() > end:
                return
            jobs = []
            for number, (sample, answers) in enumerate(tasks[start : start + _TOGETHER], start):
                short = replace(sample, variants=sample.variants[:variants])
                for one in answers:
                    directory = Path(place) / f"{one.author}_{number}"
                    if one.compiler == "pass":
                        write_pass_dir(dict(one.files) or _NOTHING, directory)
                    jobs.append((one, short, directory))
            bench.prepare([(sample, directory) for one, sample, directory in jobs if one.compiler == "pass"])
            for one, sample, directory in jobs:
                given = directory if one.compiler == "pass" else None
                results = bench.run(sample, one.compiler, given)
                rows.setdefault(one.author, []).extend(r.to_row(run="", author=one.author) for r in results)
            done += len(tasks[start : start + _TOGETHER])
            yield {name: summary(of_author) for name, of_author in rows.items()} | {"tasks": done}


def summary(rows: Sequence[dict]) -> dict[str, Any]:
    """AS and shares of rows of results; eager's AS is 1 by definition."""
    right = [r for r in rows if r["status"] == "ok" and r["t_min"] is not None and r["t_min"] <= -5]
    found: dict[str, Any] = {"variants": len(rows), "right": len(right)}
    for clock in ("e2e", "device"):
        speedups = [r[f"speedup_{clock}"] for r in right if r[f"speedup_{clock}"]]
        found[f"AS {clock}"] = aggregate(score_table(outcomes_of(rows, clock)))
        found[f"speedup_where_right {clock}"] = geometric_mean(speedups) if speedups else None
    return found

"""Evaluate authors on samples of a version: write passes, benchmark them, score, publish a version with the results."""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from prefect import flow

from agent.author import Author, Interactive, RunLimitReached, Submission
from agent.llm.options import LlmOptions
from agent.registry import author as author_named
from flows import DEFAULT_DATA
from flows.device import resolve_device
from flows.engine import each, flow_run_id, read_rows, say, write_rows
from flows.trajectories import saved_trajectories, usage, write_pass
from passbench.bench import Bench
from passbench.score import score_rows
from passbench.settings import Settings
from storage.dataset import load_samples
from storage.errors import PassNetError
from storage.provenance import library_versions
from storage.records import Sample
from storage.schema import CATEGORIES, CONFIGS, RESULTS
from storage.versions import Store, Version

CODE_VERSION = "4"
"""Part of a run's id; raised when authors or PassBench change so that old results must be measured again."""

AHEAD = 24
"""Samples whose passes are compiled together on a GPU before they are timed one by one."""


@flow(name="evaluate-model")
def evaluate_model(
    author: str = "distill",
    data: str = DEFAULT_DATA,
    version: str | None = None,
    split: Literal["train", "eval"] = "eval",
    category: Literal["sole_op", "fusible", "typical"] | None = None,
    limit: int | None = None,
    attempts: int = 1,
    model: str | None = None,
    device: str = "auto",
    protocol: Literal["passnet", "paper"] = "passnet",
    flush_l2: bool = False,
    rerun: bool = False,
    llm: dict[str, Any] | None = None,
) -> dict:
    """Run authors on samples and publish their results; a finished sample is not run again unless `rerun` is set.

    `author` names one author, or several separated by commas; `limit` is a number of samples. `model` and `llm`, the
    options of `agent.llm.options`, are for the author "llm". Returns a summary: the version, and for each author's run
    its scores and counts. A run that has used its money or time publishes what is finished, and says so.
    Raises PassNetError for what the caller can put right: an unknown author, version or sample, a full disk.
    """
    options = LlmOptions.from_dict(llm or {})
    authors = [author_named(name, model, options) for name in dict.fromkeys(n.strip() for n in author.split(","))]
    store = Store(data)
    opened = store.open(version)
    samples = load_samples(opened, split, [category] if category else CATEGORIES, limit=limit)
    if not samples:
        raise PassNetError(f"{opened.name} has no {category or ''} samples in split {split}; choose another split")
    where = resolve_device(device)
    settings = Settings(protocol=protocol, flush_l2=flush_l2)
    say(f"{len(samples)} samples of {opened.name}, authors {author}, on {where}")

    runs: dict[str, list[dict]] = {}
    trajectories: dict[str, list[dict]] = {}
    stopped: dict[str, str] = {}
    with Bench(where, settings) as bench:
        for writer in authors:
            run = run_id(opened, writer, samples, attempts, str(where), settings)
            directory = Path(data) / "runs" / run
            if isinstance(writer, Interactive):
                writer.begin([] if rerun else saved_trajectories(directory))
            write = partial(write_sample, bench, writer, run, directory, attempts, rerun)
            measure = partial(measure_sample, bench, writer, run, directory)
            together = AHEAD if where.startswith("cuda") and not isinstance(writer, Interactive) else 1
            runs[run] = []
            number = 0
            try:
                for start in range(0, len(samples), together):
                    written = list(each(write, samples[start : start + together], "write-sample"))
                    if together > 1:
                        bench.prepare([(own.sample, handed.pass_dir) for own in written for handed in own.passes])
                    for rows in each(measure, written, "measure-sample"):
                        runs[run] += rows
                        say(f"[{number + 1}/{len(samples)}] {writer.name} {samples[number].sample}: {outcome(rows)}")
                        number += 1
            except RunLimitReached as limit:
                if not runs[run]:
                    raise
                stopped[run] = str(limit)
                say(str(limit))
            trajectories[run] = saved_trajectories(directory)

    scores = [
        score
        for writer, (run, rows) in zip(authors, runs.items(), strict=True)
        for clock in ("e2e", "device")
        for score in score_rows(rows, run=run, author=writer.name, clock=clock)
    ]
    published = publish(store, opened, runs, scores, trajectories)
    return {
        "version": published.name,
        "path": str(published.path),
        "device": rows_device(runs),
        "times_meaningful": all(row["times_meaningful"] for rows in runs.values() for row in rows),
        "runs": [
            summary(run, rows, [s for s in scores if s["run"] == run])
            | ({"usage": usage(trajectories[run])} if trajectories[run] else {})
            | ({"stopped": stopped[run]} if run in stopped else {})
            for run, rows in runs.items()
        ],
    }


def run_id(
    version: Version,
    author: Author | Interactive,
    samples: Sequence[Sample],
    attempts: int,
    device: str,
    settings: Settings,
) -> str:
    """An id that is the same whenever the same would be measured: what is finished under it need not be repeated."""
    identity = {
        "samples": sorted([s.sample, *(v.variant_hash for v in s.variants)] for s in samples),
        "author": [author.name, attempts, *([dict(author.identity)] if isinstance(author, Interactive) else [])],
        "device": device,
        "settings": asdict(settings) | {"off": sorted(settings.off)},
        "libraries": library_versions(),
        "code": CODE_VERSION,
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    return f"{author.name}-{digest[:10]}"


@dataclass(frozen=True)
class Written:
    """What an author hands in for a sample, by attempt; empty if the sample is measured already."""

    sample: Sample
    submissions: tuple[Submission, ...] = ()

    @property
    def passes(self) -> list[Submission]:
        """Those that are a pass."""
        return [each for each in self.submissions if each.compiler == "pass"]


def write_sample(
    bench: Bench, author: Author | Interactive, run: str, directory: Path, attempts: int, rerun: bool, sample: Sample
) -> Written:
    """Have the author write its passes for one sample, unless its results are in the run's directory already."""
    if _results(directory, sample).exists() and not rerun:
        return Written(sample)
    submissions = []
    for attempt in range(1, attempts + 1):
        place = directory / "passes" / sample.sample / str(attempt)
        if place.exists():  # of a run that was killed before it had measured, or that is measured again
            shutil.rmtree(place)
        submissions.append(write_pass(bench, author, run, directory, attempt, sample, rerun))
    return Written(sample, tuple(submissions))


def measure_sample(
    bench: Bench, author: Author | Interactive, run: str, directory: Path, written: Written
) -> list[dict]:
    """Rows of the results table for one sample; read from the run's directory if they are there already."""
    sample = written.sample
    if not written.submissions:
        return read_rows(_results(directory, sample), RESULTS)
    rows = []
    model = author.identity["model"] if isinstance(author, Interactive) else ""
    for attempt, submission in enumerate(written.submissions, 1):
        for result in bench.run(sample, submission.compiler, submission.pass_dir):
            row = result.to_row(run=run, author=author.name, model=model, attempt=attempt)
            if submission.reason and row["status"] == "ok" and not row["reason"]:
                row["reason"] = submission.reason
            rows.append(row)
    write_rows(_results(directory, sample), rows, RESULTS)
    return rows


def _results(directory: Path, sample: Sample) -> Path:
    return directory / f"{sample.sample}.parquet"


def publish(
    store: Store,
    evaluated: Version,
    runs: dict[str, list[dict]],
    scores: list[dict],
    trajectories: dict[str, list[dict]],
) -> Version:
    """A version with these runs' rows beside the earlier ones; the newest one if it holds them already.

    Results are added to the newest version as long as it holds the same dataset, else to the one evaluated.
    """
    keep = [config for config in CONFIGS if config not in ("results", "scores", "trajectories")]
    with store.updating() as newest:
        parent = newest if newest and _shards(newest, keep) == _shards(evaluated, keep) else evaluated
        tables = {}
        fresh = {
            "results": [row for rows in runs.values() for row in rows],
            "scores": scores,
            "trajectories": [row for rows in trajectories.values() for row in rows],
        }
        for config, new in fresh.items():
            old = [row for row in parent.table(config).to_pylist() if row["run"] not in runs]
            rows = sorted(old + new, key=lambda row: json.dumps([row.get(c) for c in ORDER]))
            tables[config, "all"] = pa.Table.from_pylist(rows, CONFIGS[config])
        version, created = store.publish(
            tables,
            kind="evaluate",
            parent=parent,
            keep=keep,
            parameters={"evaluated": evaluated.name, "runs": sorted(runs)},
            summary={run: Counter(row["status"] for row in rows) for run, rows in runs.items()},
            flow_run=flow_run_id(),
        )
    say(f"published {version.name}" if created else f"nothing new: {version.name} holds these results")
    return version


ORDER = ("run", "sample", "variant_hash", "attempt", "clock", "t")
"""What rows of results, scores and trajectories are sorted by."""


def _shards(version: Version, configs: Sequence[str]) -> set[str]:
    return {shard.sha256 for shard in version.manifest.shards if shard.config in configs}


def outcome(rows: Sequence[dict]) -> str:
    """One line about a sample's results."""
    statuses = Counter(row["status"] for row in rows)
    text = ", ".join(f"{count} {status}" for status, count in statuses.items())
    speedups = [row["speedup_e2e"] for row in rows if row["speedup_e2e"] and row["times_meaningful"]]
    return text + (f", e2e {min(speedups):.2f} to {max(speedups):.2f}" if speedups else "")


def rows_device(runs: dict[str, list[dict]]) -> str:
    """The device that the rows were measured on."""
    return next((row["device"] for rows in runs.values() for row in rows), "")


def summary(run: str, rows: Sequence[dict], scores: Sequence[dict]) -> dict:
    """A run in numbers, for the closing table."""
    failures = Counter((r["status"], (r["reason"] or "").split("\n")[0][:120]) for r in rows if r["status"] != "ok")
    e2e = {s["t"]: s["es_t"] for s in scores if s["clock"] == "e2e"}
    return {
        "run": run,
        "author": rows[0]["author"],
        "samples": len({r["sample"] for r in rows}),
        "variants": len(rows),
        "ok": sum(r["status"] == "ok" for r in rows),
        "es": {str(t): value for t, value in sorted(e2e.items())},
        "aggregate": {clock: _aggregate(scores, clock) for clock in ("e2e", "device")},
        "failures": [[status, reason, count] for (status, reason), count in failures.most_common(10)],
    }


def _aggregate(scores: Sequence[dict], clock: str) -> float | None:
    return next((s["aggregate"] for s in scores if s["clock"] == clock), None)

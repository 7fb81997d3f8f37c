"""Evaluate authors on samples of a version: write passes, benchmark them, score, publish a version with the results."""

import heapq
import json
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from prefect import flow

from agent.author import RunLimitReached
from agent.llm.options import LlmOptions
from agent.registry import author as author_named
from agent.run.attempts import saved_trajectories, usage
from agent.run.opening import alone, opened_run
from flows import DEFAULT_DATA
from flows.artifacts import keep_evaluation
from flows.evaluate.open_benches import benches_on
from flows.evaluate.samples import Ended, evaluate_samples
from flows.expected_failures import one_line
from flows.plurals import counted
from flows.steps import HOURS, begun_before, flow_run_id, say
from passbench.names import CLOCKS, COMPILERS
from passbench.score import outcome_of, score_runs
from passbench.settings import Settings
from storage.errors import PassNetError
from storage.schema import CATEGORIES, CONFIGS
from storage.versions.samples import load_samples
from storage.versions.store import Store, Version

_REASON_LETTERS = 120


@flow(name="evaluate-model", retries=1, retry_delay_seconds=10, timeout_seconds=7 * 24 * HOURS)
@one_line()
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
    runner: Literal["local", "ray"] = "local",
    only: list[str] | None = None,
) -> dict:
    """Run authors on samples and publish their results; a finished sample is not run again unless `rerun` is set.

    `author` names one author, or several separated by commas. `limit` is a number of samples; `only` are ids of samples
    (or prefixes), and others are left out. `model` and `llm` (the options of `agent.llm.options`) are for the author
    "llm".

    `device` is one device, or several separated by commas: "cuda:0,cuda:1"; "cpu:2" is the CPU, twice; "auto" is all
    GPUs. Samples are spread over them, one benchmark a device at a time; results do not depend on how many there are.
    With the `runner` "ray" samples are spread over the GPUs of Ray's cluster, and `device` is "auto" or "cpu:N".

    Returns a summary: the version, and for each author's run its scores and counts. A run that has used its money or
    time publishes what is finished, and says so. A deployment that fails of anything but a PassNetError is tried once
    more, and goes on with what is finished.
    Raises PassNetError for what the caller can put right: an unknown author, version or sample, a full disk; before
    anything is measured, for a version with a missing or corrupt shard.
    """
    names = list(dict.fromkeys(name.strip() for name in author.split(",")))
    if "llm" not in names and (given := [*(["model"] if model else []), *(llm or {})]):
        raise PassNetError(f"{', '.join(given)}: for the author llm alone, and {author} was asked for; leave it out")
    options = LlmOptions.from_dict(llm or {})
    authors = [author_named(name, model, options) for name in names]
    store = Store(data)
    opened = store.open(version)
    opened.verify()  # results are published beside all of it, which would fail after hours
    samples = load_samples(opened, split, [category] if category else CATEGORIES, names=only, limit=limit)
    if not samples:
        wanted = f"{category} samples" if category else "samples"
        raise PassNetError(f"{opened.name} has no {wanted} in split {split}; choose another split")
    settings = Settings(protocol=protocol, flush_l2=flush_l2)

    runs: dict[str, list[dict]] = {}
    trajectories: dict[str, list[dict]] = {}
    ends: dict[str, Ended] = {}
    start = time.monotonic()
    with benches_on(device, settings, runner) as benches:
        say(
            f"{counted(len(samples), 'sample')} of {opened.name}, authors {author}, on {benches.count} x {benches.kind}"
        )
        if benches.kind == "cpu" and not set(names) <= set(COMPILERS):
            say("no GPU: Triton's kernels are interpreted, which takes minutes for each variant of a large sample")
        for writer in authors:
            root, afresh = Path(data).resolve(), rerun and not begun_before()
            with alone(writer, samples, attempts, benches.kind, settings, root, say=say):
                run = opened_run(writer, samples, attempts, benches.kind, settings, root, say=say, afresh=afresh)
                run.begin()
                ends[run.name] = evaluate_samples(run, samples, benches)
                runs[run.name] = run.rows(samples)
                trajectories[run.name] = saved_trajectories(run.directory)
            if not runs[run.name]:
                raise nothing_finished(ends[run.name])

    scores = score_runs(runs.values())
    published = publish(store, opened, runs, scores, trajectories)
    seconds = time.monotonic() - start
    devices = [{**use, "busy": use["seconds"] / seconds} for use in benches.uses()]
    lines = [
        summary_of_run(run, rows, [s for s in scores if s["run"] == run])
        | ({"usage": usage(trajectories[run])} if trajectories[run] else {})
        | ({"stopped": ends[run].stopped} if ends[run].stopped else {})
        | ({"lost": list(ends[run].lost)} if ends[run].lost else {})
        for run, rows in runs.items()
    ]
    summary = {
        "version": published.name,
        "path": str(published.path),
        "samples": [sample.sample for sample in samples],
        "device": rows_device(runs),
        "times_meaningful": all(row["times_meaningful"] for rows in runs.values() for row in rows),
        "seconds": seconds,
        "devices": devices,
        "runs": lines,
    }
    keep_evaluation(summary)
    return summary


def nothing_finished(ended: Ended) -> PassNetError:
    """Why there is nothing to publish."""
    if ended.stopped:
        return RunLimitReached(ended.stopped)
    return PassNetError(
        f"the benchmark's process ended at each sample, {ended.lost[0]} first: see the log for its words"
    )


def publish(
    store: Store,
    evaluated: Version,
    runs: dict[str, list[dict]],
    scores: list[dict],
    trajectories: dict[str, list[dict]],
) -> Version:
    """Publish these runs' rows beside the earlier ones. If the newest version holds them already, it is returned.

    The rows are added to the newest version if it holds the same dataset, else to the version that was evaluated.
    """
    keep = [config for config in CONFIGS if config not in ("results", "scores", "trajectories")]
    dataset = [config for config in keep if config != "model_results"]
    with store.updating() as newest:
        parent = newest if newest and _shards(newest, dataset) == _shards(evaluated, dataset) else evaluated
        fresh = {
            "results": [row for rows in runs.values() for row in rows],
            "scores": scores,
            "trajectories": [row for rows in trajectories.values() for row in rows],
        }
        tables = {(config, "all"): with_new_rows(parent, config, new, runs) for config, new in fresh.items()}
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


def with_new_rows(
    version: Version, config: str, new: Iterable[dict], runs: Collection[str], size: int = 100
) -> Iterator[pa.RecordBatch]:
    """The rows of a config of a version in `ORDER`, those of these runs replaced by new ones; few are held at a time,
    since results hold passes and trajectories conversations."""
    others = ~pc.field("run").isin(pa.array(sorted(runs), pa.string()))
    old = (row for batch in version.batches(config, filter=others) for row in _rows_of(batch, size))
    ordered = heapq.merge(old, sorted(new, key=_place), key=_place)
    while rows := list(islice(ordered, size)):
        yield pa.RecordBatch.from_pylist(rows, CONFIGS[config])


def _rows_of(batch: pa.RecordBatch, size: int) -> Iterator[dict]:
    for start in range(0, len(batch), size):
        yield from batch.slice(start, size).to_pylist()


def _place(row: dict) -> str:
    return json.dumps([row.get(column) for column in ORDER])


def _shards(version: Version, configs: Sequence[str]) -> set[str]:
    return {shard.sha256 for shard in version.manifest.shards if shard.config in configs}


def rows_device(runs: dict[str, list[dict]]) -> str:
    """The device that the rows were measured on."""
    return next((row["device"] for rows in runs.values() for row in rows), "")


def summary_of_run(run: str, rows: Sequence[dict], scores: Sequence[dict]) -> dict:
    """A run in numbers, for the closing table."""
    failures = Counter((r["status"], _in_short(r["reason"])) for r in rows if r["status"] != "ok")
    e2e = {s["t"]: s["es_t"] for s in scores if s["clock"] == "e2e"}
    return {
        "run": run,
        "author": rows[0]["author"],
        "samples": len({r["sample"] for r in rows}),
        "variants": len(rows),
        "ok": sum(r["status"] == "ok" for r in rows),
        "matched": sum(map(_matched, rows)),
        "correct": {str(t): sum(outcome_of(r).correct(t) for r in rows) for t in (-5, 0, 1)},
        "es": {str(t): value for t, value in sorted(e2e.items())},
        "aggregate": {clock: _aggregate(scores, clock) for clock in CLOCKS},
        "failures": [[status, reason, count] for (status, reason), count in failures.most_common(10)],
    }


def _in_short(reason: str | None) -> str:
    """The first line of a reason, cut between words."""
    first = (reason or "").partition("\n")[0]
    return first if len(first) <= _REASON_LETTERS else shorten(first, _REASON_LETTERS, placeholder=" …")


def _matched(row: dict) -> bool:
    """Whether the pass has matched in the variant. A pass that cannot be compiled may have failed before it was
    applied."""
    if row["status"] == "compile_error" and row["compiler"] == "pass":
        return bool(row["matches"])
    return row["status"] not in ("no_match", "rejected")


def _aggregate(scores: Sequence[dict], clock: str) -> float | None:
    return next((s["aggregate"] for s in scores if s["clock"] == clock), None)

"""What a run of `evaluate-model` does with samples: have the author write passes, benchmark them, keep the rows.

What is done is a file of rows in the run's directory, there complete or not at all: whoever does the rest, and on
however many devices, reads it and goes on.
"""

import logging
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path

from agent.author import Author, Interactive, RunLimitReached, Submission
from flows.artifacts import progress_of
from flows.evaluate.benches import Benches
from flows.evaluate.trajectories import write_pass
from flows.steps import say
from passbench.bench import Bench
from storage.parquet import read_rows, write_rows
from storage.records import Sample
from storage.schema import RESULTS

AHEAD = 24
"""Samples whose passes are compiled together on a GPU before they are timed one by one; a lot at most."""

ROUNDS = 3
"""How often a sample is begun whose benchmark's process ends; by itself from the second time on."""


@dataclass(frozen=True)
class EvaluationRun:
    """One author's run. `directory` has what is finished of it; `gpu`: whether it is measured on GPUs."""

    name: str
    author: Author | Interactive
    directory: Path
    attempts: int
    gpu: bool

    @property
    def model(self) -> str:
        """The author's model; empty for one that asks none."""
        return self.author.identity["model"] if isinstance(self.author, Interactive) else ""

    def results(self, sample: Sample) -> Path:
        """The file of the sample's rows."""
        return self.directory / f"{sample.sample}.parquet"

    def rows(self, samples: Sequence[Sample]) -> list[dict]:
        """Rows of the results table of those samples that are finished, in their order. Raises PassNetError that names
        a corrupt file."""
        paths = map(self.results, samples)
        return [row for path in paths if path.exists() for row in read_rows(path, RESULTS)]


@dataclass(frozen=True)
class Lot:
    """Samples that one device works on in a go, each with its number among `total`."""

    samples: tuple[tuple[int, Sample], ...]
    total: int


@dataclass(frozen=True)
class Ended:
    """How a run ended: `lost` are the samples whose benchmark's process ended each time, `stopped` says which limit of
    the run was reached, if one was."""

    lost: tuple[str, ...] = ()
    stopped: str = ""


def evaluate_samples(run: EvaluationRun, samples: Sequence[Sample], benches: Benches) -> Ended:
    """Evaluate the samples that have no rows yet, on all benches. Raises what an author or a bench raises."""
    step, left = partial(evaluate_lot, run), _unfinished(run, samples)
    if len(left) < len(samples):
        say(f"{run.name}: {len(samples) - len(left)} of {len(samples)} samples are finished already")
    progress = progress_of(f"samples of {run.name}")
    for begun in range(ROUNDS):
        most = AHEAD if run.gpu and not isinstance(run.author, Interactive) and not begun else 1
        cut = lots(left, most, benches.count, len(samples))
        try:
            # A model's answers are waited for here, where its run's budget is; everything else is the processor's work.
            for _ in benches.map(step, cut, "evaluate-samples", here=bool(run.model)):
                progress(100 - 100 * len(_unfinished(run, samples)) / len(samples))
        except RunLimitReached as limit:
            say(str(limit))
            return Ended(stopped=str(limit))
        left = _unfinished(run, samples)
        if not left:
            break
    return Ended(tuple(sample.sample for _, sample in left))


def lots(left: Sequence[tuple[int, Sample]], most: int, devices: int, total: int) -> list[Lot]:
    """Samples in lots of at most `most`; for several devices in ever smaller ones, so that all end together (guided
    self-scheduling: Polychronopoulos and Kuck, IEEE Trans. Computers C-36(12), 1987)."""
    cut, start = [], 0
    while start < len(left):
        share = most if devices == 1 else ceil((len(left) - start) / (2 * devices))
        size = min(most, share)
        cut.append(Lot(tuple(left[start : start + size]), total))
        start += size
    return cut


def _unfinished(run: EvaluationRun, samples: Sequence[Sample]) -> list[tuple[int, Sample]]:
    return [(number, sample) for number, sample in enumerate(samples, 1) if not run.results(sample).exists()]


def evaluate_lot(run: EvaluationRun, bench: Bench, lot: Lot) -> None:
    """Evaluate a lot's samples that have no rows yet. On a GPU the passes of all are compiled before one is timed."""
    todo = [(number, sample) for number, sample in lot.samples if not run.results(sample).exists()]
    written = [(number, sample, write_sample(run, bench, sample)) for number, sample in todo]
    if len(written) > 1:
        bench.prepare([(s, one.pass_dir) for _, s, handed in written for one in handed if one.compiler == "pass"])
    for number, sample, submissions in written:
        rows = measure_sample(run, bench, sample, submissions)
        line = f"[{number}/{lot.total}] {run.name} {sample.sample} on {bench.device}: {outcome(rows)}"
        say(line, run=run.name, sample=sample.sample)


def write_sample(run: EvaluationRun, bench: Bench, sample: Sample) -> list[Submission]:
    """What the author hands in for one sample, by attempt."""
    submissions = []
    for attempt in range(1, run.attempts + 1):
        place = run.directory / "passes" / sample.sample / str(attempt)
        if place.exists():  # of a run that was killed before it had measured
            shutil.rmtree(place)
        submissions.append(write_pass(bench, run.author, run.name, run.directory, attempt, sample))
    return submissions


def measure_sample(run: EvaluationRun, bench: Bench, sample: Sample, submissions: Sequence[Submission]) -> list[dict]:
    """Rows of the results table for one sample, kept in the run's directory."""
    rows = []
    for attempt, submission in enumerate(submissions, 1):
        for result in bench.run(sample, submission.compiler, submission.pass_dir):
            row = result.to_row(run=run.name, author=run.author.name, model=run.model, attempt=attempt)
            if submission.reason and row["status"] == "ok" and not row["reason"]:
                row["reason"] = submission.reason
            rows.append(row)
            line = f"{run.name} {sample.sample} {row['variant_hash'][:12]}: {row['status']} {row['reason']}"
            say(line, logging.DEBUG, run=run.name, sample=sample.sample, variant=row["variant_hash"])
    write_rows(run.results(sample), rows, RESULTS)
    return rows


def outcome(rows: Sequence[dict]) -> str:
    """One line about a sample's results."""
    statuses = Counter(row["status"] for row in rows)
    text = ", ".join(f"{count} {status}" for status, count in statuses.items())
    speedups = [row["speedup_e2e"] for row in rows if row["speedup_e2e"] and row["times_meaningful"]]
    return text + (f", e2e {min(speedups):.2f} to {max(speedups):.2f}" if speedups else "")

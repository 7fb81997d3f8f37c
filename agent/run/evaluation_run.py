"""One author's run on samples: have it write passes, measure them, keep the rows.

What is finished is a file of rows in the run's directory, there complete or not at all. Whoever does the rest, and on
however many devices, looks for these files and goes on.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import ceil, inf
from pathlib import Path

from agent.author import Author, Submission
from agent.run.attempts import saved_trajectories, write_pass
from agent.run.progress import Say, log
from passbench.bench import Bench
from passbench.result import VariantResult
from storage.parquet import read_rows, write_rows
from storage.records import Sample
from storage.schema import RESULTS

AHEAD = 24
"""Samples whose passes are compiled together on a GPU before they are timed one by one; a lot at most."""
QUIET_S = 30.0
"""Seconds of a sample without a line after which a variant gets one: an interpreter takes minutes for a sample."""


@dataclass(frozen=True)
class EvaluationRun:
    """One author's run. `directory` has what is finished of it; `gpu`: whether it is measured on GPUs; `state`: where
    the author keeps what is of use to later runs; `say` gets lines of progress; a variant is measured within a `turn`.
    Travels to other processes."""

    name: str
    author: Author
    directory: Path
    attempts: int
    gpu: bool
    state: Path | None = None
    say: Say = log
    turn: Callable[[], AbstractContextManager[None]] = nullcontext

    @property
    def lot_size(self) -> int:
        """How many samples one device works on in a go: one, where passes are measured as they are written."""
        return AHEAD if self.gpu and not self.author.measures else 1

    def results(self, sample: Sample) -> Path:
        """The file of the sample's rows."""
        return self.directory / f"{sample.sample}.parquet"

    def begin(self) -> None:
        """Tell the author what an earlier part of the run has left."""
        self.author.begin(saved_trajectories(self.directory))

    def unfinished(self, samples: Sequence[Sample]) -> list[tuple[int, Sample]]:
        """The samples that have no rows yet, with their numbers among all, from 1."""
        return [(number, sample) for number, sample in enumerate(samples, 1) if not self.results(sample).exists()]

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


def evaluate_lot(run: EvaluationRun, bench: Bench, lot: Lot, deadline: float = inf) -> None:
    """Evaluate a lot's samples that have no rows yet. On a GPU the passes of all are compiled before one is timed.

    No sample is measured that would begin after `deadline`, on the clock of `time.monotonic`.
    """
    todo = [(number, sample) for number, sample in lot.samples if not run.results(sample).exists()]
    written = [(number, sample, write_sample(run, bench, sample)) for number, sample in todo]
    if len(written) > 1:
        bench.prepare([(s, one.pass_dir) for _, s, handed in written for one in handed if one.compiler == "pass"])
    for number, sample, submissions in written:
        if time.monotonic() > deadline:
            return
        rows = measure_sample(run, bench, sample, submissions)
        line = f"[{number}/{lot.total}] {run.name} {sample.sample} on {bench.device}: {outcome(rows)}"
        run.say(line, run=run.name, sample=sample.sample)


def write_sample(run: EvaluationRun, bench: Bench, sample: Sample) -> list[Submission]:
    """What the author hands in for one sample, by attempt."""
    return [
        write_pass(bench, run.author, run.name, run.directory, attempt, sample, run.say, run.state)
        for attempt in range(1, run.attempts + 1)
    ]


def measure_sample(run: EvaluationRun, bench: Bench, sample: Sample, submissions: Sequence[Submission]) -> list[dict]:
    """Rows of the results table for one sample, kept in the run's directory."""
    rows, told = [], time.monotonic()
    for attempt, submission in enumerate(submissions, 1):
        for result in _in_turn(run, bench.run(sample, submission.compiler, submission.pass_dir)):
            row = result.to_row(run=run.name, author=run.author.name, model=run.author.model_name, attempt=attempt)
            if submission.reason and row["status"] == "ok" and not row["reason"]:
                row["reason"] = submission.reason
            rows.append(row)
            found = ", ".join(filter(None, (row["status"], row["reason"])))
            line = f"{run.name} {sample.sample} {row['variant_hash'][:12]}: {found}"
            level = logging.DEBUG
            if time.monotonic() - told >= QUIET_S:
                level, told = logging.INFO, time.monotonic()
                line = f"{line}; {len(rows)} of {len(sample.variants) * len(submissions)} variants"
            run.say(line, level, run=run.name, sample=sample.sample, variant=row["variant_hash"])
    write_rows(run.results(sample), rows, RESULTS)
    return rows


def _in_turn(run: EvaluationRun, results: Iterator[VariantResult]) -> Iterator[VariantResult]:
    """The results, each measured within a turn of its own."""
    while True:
        with run.turn():
            result = next(results, None)
        if result is None:
            return
        yield result


def outcome(rows: Sequence[dict]) -> str:
    """One line about a sample's results."""
    statuses = Counter(row["status"] for row in rows)
    text = ", ".join(f"{count} {status}" for status, count in statuses.items())
    speedups = [row["speedup_e2e"] for row in rows if row["speedup_e2e"] and row["times_meaningful"]]
    return text + (f", e2e {min(speedups):.2f} to {max(speedups):.2f}" if speedups else "")

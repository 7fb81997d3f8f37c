"""Run authors on samples of a version on this machine; needs torch, triton, numpy, pandas and pyarrow alone.

    python -m agent.run VERSION_DIR --authors eager,inductor,distill --out DIR

Writes DIR/runs/RUN/SAMPLE.parquet (rows of `storage.schema.RESULTS`, a file per sample, as they come), then
DIR/results.parquet, DIR/scores.json, DIR/summary.md and, of distill, DIR/floors.md: how far from the least time each
variant is. Given the same DIR and options again, it goes on where it stopped; where it does not, it says why.
"""

import argparse
import fcntl
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from agent.ahead.author_pool import Answers, AuthorPool
from agent.ahead.gpu_turns import GpuTurns
from agent.ahead.written_ahead import WrittenAhead
from agent.author import Author, ReadyPasses
from agent.distill.tuned import Tuned
from agent.registry import author as author_named
from agent.run.choose import Choice, chosen
from agent.run.evaluation_run import EvaluationRun, evaluate_lot, lots
from agent.run.floors import floors
from agent.run.opening import opened_run
from agent.run.progress import LOGGER, log
from agent.run.summary import summary
from passbench.bench import Bench
from passbench.names import COMPILERS
from passbench.score import score_runs
from passbench.settings import Settings
from passbench.timing.cores import window
from storage.disk import write_json
from storage.errors import PassNetError
from storage.parquet import write_rows
from storage.records import Sample
from storage.schema import CATEGORIES, RESULTS
from storage.versions.version import Version

_TOGETHER = 12  # samples that an author takes before it is the next one's turn
_LEAST_TOGETHER = 6  # samples written ahead that are worth compiling together
_POLL = 0.05  # seconds between looks at what is written ahead


@dataclass
class _Host:
    """A GPU host at work: what is common to all authors of a run. So many processes `write_ahead` the passes of an
    author that measures. `seconds` is what each step took."""

    bench: Bench
    out: Path
    settings: Settings
    budget: float
    compile_ahead: int
    lock: Path | None
    write_ahead: int = 0
    began: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, authors: Sequence[Author], samples: Sequence[Sample]) -> dict[str, list[dict]]:
        """Rows by author, of those samples that were finished within the budget, in this call or an earlier one.

        Authors take turns, some samples each, so that a budget which is over leaves the same samples to all.
        """
        kind, end = self.bench.device.type, self.began + self.budget
        pools = self._pools(authors, samples)
        handing = [WrittenAhead(one, pools[one.name].answers) if one.name in pools else one for one in authors]
        runs = [opened_run(author, samples, 1, kind, self.settings, self.out) for author in handing]
        for pool in pools.values():
            turns = GpuTurns(pool.answers.directory)
            runs = [replace(run, turn=turns.benchmark) for run in runs]
        with _turn(self.lock), _at_work(pools.values()):
            for run in runs:
                run.begin()
            for together in self._together(samples, runs, list(pools.values()), end):
                if self.compile_ahead:
                    self._compile_ahead(runs, [sample for _, sample in together], end)
                for run in runs:
                    begin = time.monotonic()
                    left = [one for one in together if not run.results(one[1]).exists()]
                    for lot in lots(left, run.lot_size, 1, len(samples)):
                        if time.monotonic() < end:
                            evaluate_lot(run, self.bench, lot, deadline=end)
                    name = run.author.name
                    self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begin
        for run in runs:
            if missing := len(run.unfinished(samples)):
                log(f"{run.author.name} stopped at the budget of {self.budget:.0f} s: {missing} samples are left")
        return {run.author.name: run.rows(samples) for run in runs}

    def _pools(self, authors: Sequence[Author], samples: Sequence[Sample]) -> dict[str, AuthorPool]:
        """The processes that write ahead, by author: none unless asked for, and for one author at most."""
        measuring = [author for author in authors if author.measures and self.write_ahead]
        if len(measuring) > 1:
            raise PassNetError("--write-ahead is for one author that measures; run the others by themselves")
        device = self.bench.device
        cores = os.sched_getaffinity(0)
        kept = cores - set(window(device)) if device.type == "cuda" else cores
        return {
            author.name: AuthorPool(
                author,
                samples,
                Answers(self.out / "ahead" / author.name),
                device,
                self.write_ahead,
                kept or cores,
                self.out / "authors" / author.name,
            )
            for author in measuring
        }

    def _together(
        self, samples: Sequence[Sample], runs: Sequence[EvaluationRun], pools: Sequence[AuthorPool], end: float
    ) -> Iterator[list[tuple[int, Sample]]]:
        """The numbered samples, some at a time: in order, or those first whose passes are written ahead first."""
        left = list(enumerate(samples, 1))
        if not pools:
            yield from (left[start : start + _TOGETHER] for start in range(0, len(left), _TOGETHER))
            return
        (pool,) = pools
        begin = time.monotonic()
        while left and time.monotonic() < end:
            pool.tend()
            finished = not pool.at_work  # before the look at what is there
            ready = [one for one in left if pool.answers.of(one[1]) is not None][:_TOGETHER]
            if not ready and finished:
                return
            if len(ready) < _LEAST_TOGETHER and not finished:
                time.sleep(_POLL)
                continue
            self.seconds["waiting for authors"] = (
                self.seconds.get("waiting for authors", 0.0) + time.monotonic() - begin
            )
            yield ready
            begin = time.monotonic()
            left = [one for one in left if one not in ready]

    def _compile_ahead(self, runs: Sequence[EvaluationRun], samples: Sequence[Sample], end: float) -> None:
        """Have all baselines compile side by side what is left of these samples."""
        begin = time.monotonic()
        baselines = [run for run in runs if run.author.name in COMPILERS and run.author.name != "eager"]
        left = [(run.author.name, one) for run in baselines for one in samples if not run.results(one).exists()]
        for compiler, (variant, reason) in self.bench.precompile(left, self.compile_ahead, deadline=end):
            log(f"{compiler}: {variant.variant_hash[:12]} not compiled ahead: {reason[:200]}")
        self.seconds["compiling ahead"] = self.seconds.get("compiling ahead", 0.0) + time.monotonic() - begin


def main(given: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; returns the exit status: 0 done, 1 where no sample was run."""
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    LOGGER.setLevel(logging.INFO)
    parser = _parser()
    arguments = parser.parse_args(given)
    try:
        return _run(arguments)
    except PassNetError as error:
        print(f"agent.run: {error}", file=sys.stderr)
        return 1


def _run(arguments: argparse.Namespace) -> int:
    version = Version.open(arguments.version)
    samples = chosen(version, _choice(arguments))
    authors = [_author(name, arguments.search) for name in arguments.authors.split(",") if name]
    if arguments.passes is not None:
        authors.append(ReadyPasses(arguments.passes))
    settings = Settings(
        protocol=arguments.protocol, flush_l2=arguments.flush_l2, seed=arguments.seed, repeats=arguments.repeats
    )
    with Bench(arguments.device, settings) as bench:
        host = _Host(
            bench,
            arguments.out,
            settings,
            arguments.budget,
            arguments.compile_ahead,
            arguments.lock,
            arguments.write_ahead,
        )
        runs = host.run(authors, samples)
    runs = {author: rows for author, rows in runs.items() if rows}
    if not runs:
        print("no sample was run: none is chosen, or the budget was over before the first", file=sys.stderr)
        return 1
    _finish(arguments.out, version, samples, runs, host.seconds)
    return 0


def _finish(
    out: Path, version: Version, samples: Sequence[Sample], runs: dict[str, list[dict]], seconds: dict[str, float]
) -> None:
    """Put the runs' rows together, score and describe them."""
    write_rows(out / "results.parquet", [row for rows in runs.values() for row in rows], RESULTS)
    scores = score_runs(runs.values())
    write_json(out / "scores.json", scores, "another --out", indent=1)
    text = summary(f"Samples of the version of digest {version.manifest.digest[:12]}", runs, seconds)
    (out / "summary.md").write_text(text, "utf-8")
    if slow := floors({v.variant_hash: v for sample in samples for v in sample.variants}, runs):
        (out / "floors.md").write_text(slow, "utf-8")
    print(text)


def _author(name: str, search: float | None) -> Author:
    author = author_named(name)
    if search is not None and name == "distill":
        author = replace(Tuned(), seconds=search)
    return author


def _choice(arguments: argparse.Namespace) -> Choice:
    names = None
    if arguments.names is not None:
        names = frozenset(arguments.names.read_text("utf-8").split())
    if arguments.passes is not None:
        there = frozenset(path.name for path in arguments.passes.iterdir())
        names = there if names is None else names & there
    number, _, count = arguments.part.partition("/")
    return Choice(
        splits=tuple(arguments.split.split(",")),
        categories=tuple(arguments.categories.split(",")),
        names=names,
        limit=arguments.limit,
        each=arguments.each,
        variants=arguments.variants,
        one_a_dtype=arguments.one_a_dtype,
        at_most=arguments.at_most,
        part=(int(number), int(count)),
        mixed=arguments.mixed,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m agent.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("version", type=Path, help="directory of a dataset version")
    add("--authors", default="eager,inductor,distill", help="names, separated by commas; empty for none")
    add("--passes", type=Path, metavar="DIR", help="also run the passes DIR/SAMPLE, on the samples that have one alone")
    add("--split", default="eval", help="eval, train, or eval,train")
    add("--categories", default=",".join(CATEGORIES))
    add("--names", type=Path, metavar="FILE", help="a file with the names of the samples to take")
    add("--limit", type=int, help="samples")
    add("--each", type=int, metavar="N", help="N samples of each category")
    add("--part", default="0/1", metavar="I/N", help="the I-th of N parts of the samples, from 0")
    add("--variants", type=int, help="stop taking samples at so many variants")
    add("--one-a-dtype", action="store_true", help="the first variant of each dtype of a sample alone")
    add("--at-most", type=int, metavar="N", help="N variants of a sample, spread over all")
    add("--mixed", action="store_true", help="every beginning of the samples has each category in proportion")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--protocol", default="passnet", choices=("passnet", "paper"))
    add("--flush-l2", action="store_true")
    add("--seed", type=int, help="of inputs, so that two runs draw the same; without it nobody can know them")
    add("--repeats", type=int, help="as many exchanges again where times are noisy; default 3 on a GPU")
    add("--compile-ahead", type=int, default=0, metavar="N", help="N processes compile baselines, 12 samples at a time")
    add("--write-ahead", type=int, default=0, metavar="N", help="N processes write distill's passes, a sample each")
    add("--search", type=float, metavar="SECONDS", help="what distill may spend on measuring a sample")
    add("--budget", type=float, default=3600.0, metavar="SECONDS", help="after these no further sample is begun")
    add("--lock", type=Path, metavar="FILE", help="is locked while timing, so that runs side by side time in turn")
    add("--out", type=Path, required=True)
    return parser


@contextmanager
def _at_work(pools: Iterable[AuthorPool]) -> Iterator[None]:
    """Processes that write ahead, while the context lasts."""
    pools = list(pools)
    try:
        for pool in pools:
            pool.start()
        yield
    finally:
        for pool in pools:
            pool.close()


@contextmanager
def _turn(lock: Path | None) -> Iterator[None]:
    """This process's turn on the device that the file stands for."""
    if lock is None:
        yield
        return
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main())

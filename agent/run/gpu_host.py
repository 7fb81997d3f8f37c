"""A GPU host at work: authors take turns at samples, and what each has finished stays on disk.

Nothing here is of a version or of the command line: samples, authors and a `Bench` come from outside.
"""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent.ahead.author_pool import Answers, AuthorPool
from agent.ahead.gpu_turns import GpuTurns, locked
from agent.ahead.written_ahead import WrittenAhead
from agent.author import Author
from agent.run.evaluation_run import EvaluationRun, evaluate_lot, lots
from agent.run.opening import opened_run
from agent.run.progress import log
from passbench.bench import Bench
from passbench.names import COMPILERS
from passbench.settings import Settings
from passbench.timing.cores import window
from storage.errors import PassNetError
from storage.records import Sample

_TOGETHER = 12  # samples that an author takes before it is the next one's turn
_LEAST_TOGETHER = 6  # samples written ahead that are worth compiling together
_POLL = 0.05  # seconds between looks at what is written ahead


@dataclass
class GpuHost:
    """A GPU host at work: what is common to all authors of a run. So many processes `write_ahead` the passes of an
    author that measures. They have `write_first` seconds before anything is timed; what they have not answered by then
    is not run. With 0 they write while PassBench times. `seconds` is what each step took."""

    bench: Bench
    out: Path
    settings: Settings
    budget: float
    compile_ahead: int
    lock: Path | None
    write_ahead: int = 0
    write_first: float = 0.0
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
        turn = locked(self.lock) if self.lock else nullcontext()
        with turn, _at_work(pools.values()):
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
        for name, pool in pools.items():
            for one in pool.answers.stopped():
                why = "the GPU has no memory for it" if one.lacked_memory else one.reason or f"status {one.status}"
                log(f"{name}: process {one.number} ended {one.starts} times before it had a sample: {why[:200]}")
        return {run.author.name: run.rows(samples) for run in runs}

    def _pools(self, authors: Sequence[Author], samples: Sequence[Sample]) -> dict[str, AuthorPool]:
        """The processes that write ahead, by author: none unless asked for, and for one author at most."""
        measuring = [author for author in authors if author.measures and self.write_ahead]
        if len(measuring) > 1:
            raise PassNetError("--write-ahead is for one author that measures; run the others by themselves")
        device = self.bench.device
        cores = os.sched_getaffinity(0)
        beside = device.type == "cuda" and not self.write_first
        kept = cores - set(window(device)) if beside else cores
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
        if self.write_first:
            pool.finish(min(end, begin + self.write_first))
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

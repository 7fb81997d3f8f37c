"""One table of eager, all baselines, `distill` and `distill-static` on the same samples, by both clocks.

It takes as many sittings as there is time for.

    python3 -m benchmarks.passbench.baselines_table VERSION_DIR... --names FILE --out DIR --budget 560 --device cuda:0
        [--first 180] [--now 110] [--write 150] [--tune 22] [--dearest-first] [--search 4] [--authors 6] [--processes 9]
        [--full 4] [--full-of sole_op] [--passes ROWS.parquet ...]

Samples are those that FILE names, in its order, each from the first version that has it; one variant of each, whose
dtype changes from sample to sample. A sitting has three parts:

1. for `--write` seconds `distill` and `distill-static` write passes (`--authors` processes) while `--processes` others
   compile all baselines but max-autotune for the first `--now` samples that have no rows; where an earlier sitting has
   written the passes, authors' processes compile. Then all together compile the passes, `--processes` and `--authors`
   processes with several each. Max-autotune has `--tune` seconds and a grace, the cheapest samples of each category
   first, or the dearest of all (`benchmarks.passbench.max_autotune`). What it does not come to has no row of it;
2. then nothing but the timing is at work: each sample under all of them at once (`passbench.shared_bench`). What used
   the processor meanwhile is said in the end;
3. the first `--full` samples, of the categories `--full-of`, are measured once more, one compiler after another
   (`passbench.bench`), to compare.

`distill-static` has a row where it has answered; one that wrote the pass that `distill` handed in shares its row's
figures. A sample that takes `distill` longer than `--patience` counts as left to eager. One that is not answered when
the time is over, or has a baseline that nobody came to, is left to the next sitting, and so is one that found no memory
beside what others keep: a sitting of fewer samples (`--now`) has more. DIR/rows has a file of each sample, so that a
sitting that is killed loses nothing, and a later one with the same DIR goes on. `--only-table` makes the tables of what
is there. With several GPUs start one such run each, with its `--part I/N`, its `--device` and its share of the cores
(`taskset`).

With `--passes` recorded passes are measured instead of new ones, each on the variant that its row has; authors write
those that no row has. Of several rows of a sample the last counts.
"""

import argparse
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import torch

from agent.ahead.author_pool import Answers, AuthorPool
from agent.author import Submission
from agent.distill.tuned import Tuned
from agent.run.choose import floating_dtype
from benchmarks.passbench.compared import AUTHOR, STATIC, STRICT, text_of
from benchmarks.passbench.host_noise import processor_use
from benchmarks.passbench.max_autotune import TUNED, cheapest_first, dearest_first, tune
from benchmarks.passbench.recorded_passes import keep_answers
from benchmarks.passbench.static_too import StaticToo
from passbench.contract import read_pass_dir
from passbench.result import VariantResult
from passbench.settings import Settings
from passbench.shared_bench import SharedBench
from passbench.timing.cores import on_cores
from passbench.workers.precompile import NO_TIME, Missed
from storage.errors import PassNetError
from storage.parquet import read_rows, write_rows
from storage.records import Sample
from storage.schema import CATEGORIES, RESULTS
from storage.versions.samples import load_samples
from storage.versions.version import Version

BASELINES = ("inductor", "inductor-direct", "inductor-strict", "inductor-strict-direct", "cudagraphs")
ROWS, FULL, BEGUN = "rows", "full", "begun"
_GRACE = 12.0  # seconds that baselines may go on with what they have begun
_PASS_SECONDS, _PASS_GRACE = 35.0, 10.0  # for compiling all passes, and for what is begun by then
_NO_MEMORY = re.compile("out of memory|no memory to compare")
_FULL_SECONDS = 4.0  # that the second measurement of a sample takes, about


@dataclass(frozen=True)
class Sitting:
    """The samples of this sitting and where all is kept. `began` and all limits are of `time.monotonic`; what loading
    the samples takes is in them."""

    given: argparse.Namespace
    samples: Sequence[Sample]
    answers: Answers
    static: Answers
    began: float

    @property
    def left(self) -> list[Sample]:
        """The samples that have no rows yet; last those in which an earlier sitting broke off."""
        left = [sample for sample in self.samples if not self.file(sample).exists()]
        return sorted(left, key=lambda sample: self.file(sample, BEGUN).exists())

    def file(self, sample: Sample, of: str = ROWS) -> Path:
        """Where the rows of a sample are, or those `of` its second measurement; or what says that it was begun."""
        return self.given.out / of / f"{sample.sample}.parquet"

    def end(self, seconds: float) -> float:
        """The moment so many seconds after the beginning."""
        return self.began + seconds

    def say(self, text: str) -> None:
        """Print a line with the time."""
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", flush=True)


def samples_of(
    versions: Sequence[Path], names: Sequence[str], recorded: Mapping[str, str] = MappingProxyType({})
) -> list[Sample]:
    """The named samples in this order, each with one variant: the `recorded` one, by its hash, or of the next dtype
    that the sample has. Says which ones no version has, and leaves them out. Raises PassNetError where none is left."""
    found: dict[str, Sample] = {}
    for version in map(Version.open, versions):
        for split in ("eval", "train"):
            there = set(version.table("samples", split)["sample"].to_pylist()) - found.keys()
            some = [name for name in names if name in there]
            found |= {sample.sample: sample for sample in load_samples(version, split, names=some)}
    if missing := [name for name in names if name not in found]:
        print(f"in none of the versions: {', '.join(missing)}", flush=True)
    if not found:
        raise PassNetError(f"{', '.join(map(str, versions))}: none of the named samples is there")
    return [_one_variant(found[name], number, recorded) for number, name in enumerate(names) if name in found]


def _one_variant(sample: Sample, number: int, recorded: Mapping[str, str]) -> Sample:
    wanted = [variant for variant in sample.variants if variant.variant_hash == recorded.get(sample.sample)]
    first = {floating_dtype(variant): variant for variant in reversed(sample.variants)}
    variants = wanted or sorted(first.values(), key=sample.variants.index)
    return replace(sample, variants=(variants[number % len(variants)],))


def write_and_compile(sitting: Sitting, bench: SharedBench) -> list[tuple[Sample, Submission, list[str]]]:
    """Part 1: passes and compiled baselines, side by side on cores of their own. Returns what can be measured: samples
    with their answers and the baselines that take part."""
    given, left = sitting.given, sitting.left
    cores = sorted(os.sched_getaffinity(0))
    unanswered = sum(sitting.answers.of(sample) is None for sample in left)
    authors = min(given.authors, unanswered)
    processes = given.processes + given.authors - authors
    share = max(1, len(cores) * processes // (processes + authors))
    author = StaticToo(replace(Tuned(), seconds=given.search), sitting.static)
    pool = AuthorPool(
        author,
        left,
        sitting.answers,
        bench.device,
        authors,
        set(cores[share:] or cores),
        given.out / "authors",
        given.patience,
    )
    now = left[: given.now]
    variants = [sample.variants[0] for sample in now]
    end = sitting.end(given.write)
    with at_work(pool), on_cores(set(cores[:share])):
        tending = threading.Thread(target=pool.finish, args=(end,))
        tending.start()
        missed = bench.compile_all(given.baselines, variants, processes, end, _GRACE)
        every = len(given.baselines) * len(variants)
        sitting.say(f"compiled {every - len(missed)} of {every}")
        tending.join()
    sitting.say(f"{sum(sitting.answers.of(sample) is not None for sample in left)} of {len(left)} answered")
    out = {one.variant.variant_hash for _, one in missed if one.reason == NO_TIME}
    ready = [
        (sample, answer)
        for sample in now
        if sample.variants[0].variant_hash not in out and (answer := sitting.answers.of(sample)) is not None
    ]
    together = max(1, given.processes + given.authors)
    compile_passes(sitting, bench, ready, together)
    order = dearest_first if given.dearest_first else cheapest_first
    missed += tune(bench, order(sample for sample, _ in ready), given.tune, together)
    say_missed(sitting, missed)
    tuned = {sample.sample for sample, _ in ready if bench.compiled(TUNED, sample.variants[0])}
    sitting.say(f"{len(ready)} samples can be measured, {len(tuned)} of them by {TUNED}")
    return [(sample, answer, [*given.baselines, *[TUNED] * (sample.sample in tuned)]) for sample, answer in ready]


def say_missed(sitting: Sitting, missed: Sequence[tuple[str, Missed]]) -> None:
    """Say why variants were not compiled ahead."""
    for reason, count in Counter(f"{compiler}: {one.reason[:150]}" for compiler, one in missed).most_common(20):
        sitting.say(f"not compiled ahead, {count} times {reason}")


def compile_passes(
    sitting: Sitting, bench: SharedBench, ready: Sequence[tuple[Sample, Submission]], processes: int
) -> None:
    """Have processes compile the passes, so that none need start while others are timed."""
    answers = [(sample, one) for sample, answer in ready for one in (answer, sitting.static.of(sample))]
    jobs = [(sample, one.pass_dir) for sample, one in answers if one is not None and one.compiler == "pass"]
    missed = bench.compile_passes(jobs, processes, time.monotonic() + _PASS_SECONDS, _PASS_GRACE)
    sitting.say(f"compiled {len(jobs) - len(missed)} of {len(jobs)} passes")


@contextmanager
def at_work(pool: AuthorPool) -> Iterator[None]:
    """Processes of authors, while the context lasts."""
    pool.start()
    try:
        yield
    finally:
        pool.close()


def measure(sitting: Sitting, bench: SharedBench, ready: Sequence[tuple[Sample, Submission, Sequence[str]]]) -> None:
    """Part 2: all samples that are ready, each under eager, its baselines and `distill`."""
    end = sitting.end(sitting.given.budget - _FULL_SECONDS * sitting.given.full)
    before = processor_use.look()
    for sample, answer, baselines in ready:
        if time.monotonic() > end:
            break
        sitting.file(sample, BEGUN).touch()
        rows = _rows(bench, sample, {AUTHOR: answer, STATIC: sitting.static.of(sample)}, ("eager", *baselines))
        if any(_NO_MEMORY.search(row["reason"] or "") for row in rows):
            sitting.say(f"{sample.sample}: no memory beside what others keep; left to a later sitting")
            continue
        write_rows(sitting.file(sample), rows, RESULTS)
        found = ", ".join(f"{r['author']} {r['status']} {r['speedup_e2e'] or 0:.2f}" for r in rows)
        sitting.say(f"{sample.sample}: {found}")
    sitting.say(f"{len(sitting.samples) - len(sitting.left)} of {len(sitting.samples)} samples have rows")
    sitting.say(processor_use.between(before, processor_use.look()))


def _rows(
    bench: SharedBench, sample: Sample, answers: Mapping[str, Submission | None], names: Sequence[str]
) -> list[dict]:
    """A row of each compiler and of each author that has answered. Where an author leaves the sample to eager the row
    has eager's figures, and of two equal passes one is measured."""
    named: dict[str, tuple[str, Path | None]] = {name: (name, None) for name in names}
    answered = {author: answer for author, answer in answers.items() if answer is not None}
    same: dict[str, str] = {}  # author → whose figures it has
    for author, answer in answered.items():
        if answer.compiler != "pass":
            same[author] = "eager"
        elif twins := [one for one in answered if one in named and _equal(answered[one], answer)]:
            same[author] = twins[0]
        else:
            named[author] = ("pass", answer.pass_dir)
    (found,) = bench.run_together(sample, named)
    for author, other in same.items():
        note = f"left to eager: {answered[author].reason}" if other == "eager" else ""
        found[author] = replace(found[other], reason="; ".join(filter(None, (found[other].reason, note))))
    return [_row(name, result) for name, result in found.items()]


def _equal(one: Submission, other: Submission) -> bool:
    return read_pass_dir(one.pass_dir).files == read_pass_dir(other.pass_dir).files


def _row(author: str, result: VariantResult) -> dict:
    """The row of a result; an author's rows are a run, as `passnet score` has it."""
    return result.to_row(run=f"{result.protocol}-{author}", author=author, attempt=1)


def measure_again(sitting: Sitting, bench: SharedBench) -> None:
    """Part 3: the first samples that have a pass once more, by the whole trial; strict TorchInductor, too, where it was
    compiled in this sitting."""
    done = 0
    for sample in sitting.samples:
        answer = sitting.answers.of(sample)
        again = sitting.file(sample, FULL)
        ready = sitting.file(sample).exists() and not again.exists() and answer is not None
        ready = ready and sample.category in sitting.given.full_of.split(",")
        if done == sitting.given.full or time.monotonic() > sitting.end(sitting.given.budget):
            break
        if ready and answer.compiler == "pass":
            rows = [_row(AUTHOR, one) for one in bench.run(sample, "pass", answer.pass_dir)]
            if bench.compiled(STRICT, sample.variants[0]):
                rows += [_row(STRICT, one) for one in bench.run(sample, STRICT)]
            write_rows(again, rows, RESULTS)
            done += 1
    sitting.say(f"{done} samples measured once more")


def tables(out: Path, names: Sequence[str]) -> str:
    """Write DIR/results.parquet, DIR/full.parquet and DIR/table.md of all rows that are there. Returns the last."""
    kept = {}
    for of in (ROWS, FULL):
        files = [file for name in names if (file := out / of / f"{name}.parquet").exists()]
        kept[of] = [row for file in files for row in read_rows(file, RESULTS)]
        write_rows(out / ("results.parquet" if of == ROWS else "full.parquet"), kept[of], RESULTS)
    text = text_of(kept[ROWS], kept[FULL])
    (out / "table.md").write_text(text, "utf-8")
    return text


def main() -> None:
    """See the module's head."""
    began, given = time.monotonic(), _parsed()
    names = given.names.read_text("utf-8").split()
    number, _, count = given.part.partition("/")
    for of in (ROWS, FULL, BEGUN):
        (given.out / of).mkdir(parents=True, exist_ok=True)
    if not given.only_table:
        passes = [row for file in given.passes for row in read_rows(file, RESULTS)]
        recorded = {row["sample"]: row["variant_hash"] for row in passes if row["author"] == AUTHOR}
        samples = samples_of(given.versions, names[: given.first], recorded)[int(number) :: int(count)]
        written, static = (Answers(given.out / place) for place in ("written", "static"))
        sitting = Sitting(given, samples, written, static, began)
        settings = Settings(
            pairs=8,
            repeats=0,
            double=False,
            timing_budget=8.0,
            first_call_timeout=60.0,
            batch_bytes=1 << 30,
        )
        for author, answers in ((AUTHOR, written), (STATIC, static)):
            keep_answers(passes, author, samples, answers)
        if not sitting.left and not given.full:
            return
        with SharedBench(given.device, settings) as bench:
            if sitting.left and given.now != 0:
                measure(sitting, bench, write_and_compile(sitting, bench))
            measure_again(sitting, bench)
            sitting.say("over")
    print(tables(given.out, names))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("versions", type=Path, nargs="+", help="directories of dataset versions")
    add("--names", type=Path, required=True, help="a file with the names of the samples")
    add("--first", type=int, help="so many of them alone")
    add("--part", default="0/1", metavar="I/N", help="the I-th of N parts of the samples, from 0")
    add("--baselines", nargs="*", choices=BASELINES, default=BASELINES, help="these alone; none: eager and `distill`")
    add("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    add("--now", type=int, help="so many of those that have no rows yet are measured; 0: none is")
    add("--authors", type=int, default=6, help="processes that write passes")
    add("--processes", type=int, default=9, help="processes that compile meanwhile")
    add("--search", type=float, default=4.0, metavar="SECONDS", help="what distill may spend on measuring a sample")
    add("--patience", type=float, default=45.0, metavar="SECONDS", help="what a sample may take distill in all")
    add("--write", type=float, default=150.0, metavar="SECONDS", help="what passes and compiling have")
    add("--tune", type=float, default=22.0, metavar="SECONDS", help="what max-autotune has for compiling")
    add("--dearest-first", action="store_true", help="max-autotune has time for all, and begins with the dearest")
    add("--passes", type=Path, nargs="*", default=[], help="rows whose passes are answers where there are none yet")
    add("--budget", type=float, default=560.0, metavar="SECONDS", help="after these no further sample is begun")
    add("--full", type=int, default=4, help="samples that are measured once more, one compiler after another")
    add("--full-of", default=",".join(CATEGORIES), metavar="CATEGORIES", help="samples of these alone are measured so")
    add("--only-table", action="store_true", help="measure nothing")
    add("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    try:
        main()
    except PassNetError as error:
        sys.exit(f"baselines_table: {error}")

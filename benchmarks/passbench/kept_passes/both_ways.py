"""Recorded passes by shared rounds and by whole trials, in one sitting: whether both say the same.

    python3 -m benchmarks.passbench.kept_passes.both_ways --out FILE [--budget 150] [--baselines inductor-strict-direct]
        [--first sole_op-dc2ad51aaedb,...]

Passes of all categories are compiled and kept by a few processes, as for the table of all baselines. Those of
`--category` are then timed in shared rounds, beside eager and `--baselines`, and once more by a whole trial each. FILE
gets both rows of each as they come, and eager's of the shared rounds; `protocol` tells them apart. Needs a GPU; times
of a CPU mean nothing.
"""

import argparse
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.passbench.kept_passes.loaded_calls import KeptPass, written_to
from passbench.names import CLOCKS
from passbench.result import VariantResult
from passbench.settings import Settings
from passbench.shared_bench import SharedBench
from storage.parquet import read_rows, write_rows
from storage.schema import CATEGORIES, RESULTS

CORPORA = tuple(Path(f"benchmarks/extraction/corpus_{number}/version") for number in (2245, 984, 578, 350, 328))
RECORD = Path("benchmarks/passbench/h100_table_276/results.parquet")
SETTINGS = Settings(pairs=8, repeats=0, double=False, timing_budget=8.0, first_call_timeout=60.0, batch_bytes=1 << 30)
"""Those of the table."""
_GRACE = 10.0


class BothWays(NamedTuple):
    """The results of a pass in shared rounds and by a whole trial, and eager's as a candidate in the same rounds."""

    shared: VariantResult
    whole: VariantResult
    eager: VariantResult

    def rows(self) -> list[dict]:
        """As `storage.schema.RESULTS`."""
        named = (("distill", self.shared), ("distill", self.whole), ("eager", self.eager))
        return [one.to_row(run=f"{one.protocol}-{author}", author=author, attempt=1) for author, one in named]


def measured(
    bench: SharedBench, kept: Sequence[KeptPass], category: str, baselines: Sequence[str], processes: int, budget: float
) -> Iterator[BothWays]:
    """The results of each pass of a category; no further one is begun after `budget` seconds."""
    end = time.monotonic() + budget
    chosen = [one for one in kept if one.sample.category == category]
    jobs = [(one.sample, one.directory) for one in kept]
    missed = bench.compile_passes(jobs, processes, time.monotonic() + budget / 3, _GRACE)
    if baselines:
        variants = [one.variant for one in chosen]
        bench.compile_all(baselines, variants, processes, time.monotonic() + budget / 4, _GRACE)
    print(f"{len(jobs) - len(missed)} of {len(jobs)} passes are kept", flush=True)
    for one in chosen:
        if time.monotonic() > end or one.sample in missed:
            continue
        ready = [name for name in baselines if bench.compiled(name, one.variant)]
        named = {name: (name, None) for name in ("eager", *ready)} | {"distill": ("pass", one.directory)}
        (together,) = bench.run_together(one.sample, named)
        (alone,) = bench.run(one.sample, "pass", one.directory)
        yield BothWays(together["distill"], alone, together["eager"])


def line_of(both: BothWays) -> str:
    """Microseconds of eager and of the pass by both clocks, shared and whole; then of eager, twice."""
    parts = [f"{both.shared.sample:24}"]
    for clock in CLOCKS:
        for result in both:
            times = [t for t in result.timings if t.clock == clock]
            parts += [f"{t.eager_us:8.2f} {t.candidate_us:8.2f}" for t in times] or [f"{result.status:>17}"]
    return "  ".join(parts)


def summary(found: Sequence[BothWays]) -> str:
    """The geometric means of the speedups in shared rounds over those of whole trials."""
    lines = []
    for clock in CLOCKS:
        pairs = [(shared.speedup(clock), whole.speedup(clock)) for shared, whole, _ in found]
        ratios = [math.log(a / b) for a, b in pairs if a and b]
        if ratios:
            mean = math.exp(sum(ratios) / len(ratios))
            lines.append(f"{clock}: shared over whole {mean:.3f}, {len(ratios)} passes")
    return "\n".join(lines)


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=Path, default=RECORD, help="rows with the text of passes")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--category", default="sole_op", choices=CATEGORIES, help="passes that are timed")
    parser.add_argument("--most", type=int, default=75, help="passes that are kept, of all categories in turn")
    parser.add_argument("--baselines", default="", help="names, separated by commas, that are timed beside them")
    parser.add_argument("--first", default="", help="samples, separated by commas, that come before all others")
    parser.add_argument("--processes", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1))
    parser.add_argument("--budget", type=float, default=150.0, help="seconds after which no further pass is timed")
    given = parser.parse_args()
    rows = [row for row in read_rows(given.rows, RESULTS) if row["author"] == "distill" and row["pass_files"]]
    rows.sort(key=lambda row: row["sample"] not in given.first.split(","))
    baselines = [name for name in given.baselines.split(",") if name]
    found: list[BothWays] = []
    with tempfile.TemporaryDirectory(prefix="both-ways-") as scratch, SharedBench(given.device, SETTINGS) as bench:
        kept = written_to(Path(scratch), rows, CORPORA, given.most)
        for both in measured(bench, kept, given.category, baselines, given.processes, given.budget):
            found.append(both)
            print(line_of(both), flush=True)
            write_rows(given.out, [row for one in found for row in one.rows()], RESULTS)
    print(summary(found))


if __name__ == "__main__":
    main()

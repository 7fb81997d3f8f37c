"""Passes of `distill` on all variants of their samples, and on shapes that they have no plans for.

    python3 -m benchmarks.agent.all_variants VERSION_DIR --names FILE --out DIR            # writes passes first
    python3 -m benchmarks.agent.all_variants VERSION_DIR --names FILE --static --one-a-dtype --out DIR  # no search
    python3 -m benchmarks.agent.all_variants VERSION_DIR --results ROWS.parquet... --out DIR  # passes of a record

Without `--results`, `distill` writes a pass for each sample that is named, and the pass is measured on all variants of
the sample. With `--results`, the pass of each row, of which a sample has one, is measured on other variants of the same
graph: at most `--others` of each of `--samples` samples, none of which the pass has a plan for.

Processes work side by side and measure as authors do (`agent.ahead.quick_measure`), since PassBench judges one variant
a second. Writes DIR/rows/SAMPLE.parquet as they come, then DIR/rows.parquet (of `storage.schema.RESULTS`) and
DIR/summary.txt. Given the same DIR again, it goes on where it stopped. `--only-summary` measures nothing, and makes the
last two of what a run that was killed has left in DIR.
"""

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

import torch

from agent.ahead.author_pool import Answers, AuthorPool
from agent.author import Attempt, Author, Submission
from agent.distill.static import Distill
from agent.distill.tuned import Tuned
from agent.run.choose import Choice, chosen, evenly
from passbench.contract import write_pass_dir
from storage.graph.as_json import to_json
from storage.parquet import read_rows, write_rows
from storage.records import Sample
from storage.schema import CATEGORIES, RESULTS
from storage.versions.version import Version

LEVEL = -5


@dataclass
class Measuring(Author):
    """Hands in nothing: measures the pass `passes`/SAMPLE/pass of each sample, and keeps the rows in `rows`."""

    passes: Path
    rows: Path
    name: str = "distill"
    measures: ClassVar[bool] = True

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """A file of rows; declines where there is no pass."""
        found = self.passes / sample.sample / "pass"
        if not found.is_dir():
            return Submission("eager", reason="no pass")
        results = attempt.measure(sample, found)
        rows = [result.to_row(run="all-variants", author=self.name) for result in results]
        write_rows(self.rows / f"{sample.sample}.parquet", rows, RESULTS)
        return Submission("eager", reason="measured")


def others(samples: Sequence[Sample], rows: Mapping[str, Mapping[str, Any]], count: int, each: int) -> list[Sample]:
    """At most `count` of the samples that have a pass in the `rows` (by sample), with at most `each` variants of the
    same graph that the pass has no plan for. Samples with many such variants come first."""
    found = []
    for sample in samples:
        planned = [v for v in sample.variants if v.variant_hash == rows.get(sample.sample, {}).get("variant_hash")]
        graphs = {to_json(v.graph) for v in planned}
        rest = tuple(v for v in sample.variants if v not in planned and to_json(v.graph) in graphs)
        if rest:
            found.append(replace(sample, variants=evenly(rest, each)))
    return sorted(found, key=lambda s: -len(s.variants))[:count]


def write_passes(rows: Iterable[Mapping[str, Any]], directory: Path) -> None:
    """The passes of the rows as `directory`/SAMPLE/pass."""
    for row in rows:
        place = directory / row["sample"] / "pass"
        if not place.exists():
            write_pass_dir({file["path"]: file["content"] for file in row["pass_files"]}, place)


def summary(rows: Sequence[Mapping[str, Any]], samples: int) -> str:
    """The counts, and how fast."""
    right = sum(row["status"] == "ok" and row["t_min"] is not None and row["t_min"] <= LEVEL for row in rows)
    statuses = ", ".join(f"{count} {status}" for status, count in Counter(row["status"] for row in rows).most_common())
    measured = len({row["sample"] for row in rows})
    lines = [f"{len(rows)} variants of {measured} samples ({samples} asked for): {statuses}; right at -5: {right}"]
    for clock in ("e2e", "device"):
        if speeds := [row[f"speedup_{clock}"] for row in rows if row[f"speedup_{clock}"]]:
            below = ", ".join(f"{sum(s < limit for s in speeds)} below {limit}" for limit in (0.97, 0.95, 0.9))
            lines.append(f"{clock}: median {median(speeds):.3f} of eager's speed; of {len(speeds)} {below}")
    for row in rows:
        if row["status"] != "ok" or row["t_min"] is None or row["t_min"] > LEVEL:
            lines.append(f"{row['sample']} {row['variant_hash'][:12]}: {row['status']} {row['t_min']} {row['reason']}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("version", type=Path, help="directory of a dataset version")
    add("--split", default="eval,train", help="eval, train, or eval,train")
    add("--names", type=Path, metavar="FILE", help="a file with the names of the samples to take")
    add(
        "--results",
        type=Path,
        nargs="+",
        metavar="ROWS",
        help="measure the passes of these rows on what they have no plans for; of a sample those in the last file",
    )
    add("--samples", type=int, default=40, help="with --results: so many samples at most")
    add("--others", type=int, default=5, help="with --results: so many variants of each at most")
    add("--static", action="store_true", help="passes are written by distill-static, which measures nothing")
    add("--one-a-dtype", action="store_true", help="take the first variant of each dtype alone")
    add("--search", type=float, default=6.0, metavar="SECONDS", help="what distill may spend on measuring a sample")
    add("--processes", type=int, default=8)
    add("--budget", type=float, default=3600.0, metavar="SECONDS", help="after these everything ends")
    add("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    add("--only-summary", action="store_true", help="measure nothing")
    add("--out", type=Path, required=True)
    options = parser.parse_args()
    end = time.monotonic() + options.budget
    names = frozenset(options.names.read_text("utf-8").split()) if options.names is not None else None
    splits = tuple(options.split.split(","))
    choice = Choice(splits=splits, categories=CATEGORIES, names=names, one_a_dtype=options.one_a_dtype)
    samples = chosen(Version.open(options.version), choice)
    device, cores = torch.device(options.device), os.sched_getaffinity(0)
    device = torch.device("cuda:0") if device == torch.device("cuda") else device  # a pool's processes need a number
    written, kept = options.out / "written", options.out / "rows"
    kept.mkdir(parents=True, exist_ok=True)
    if options.results is not None:
        known = {row["sample"]: row for file in options.results for row in read_rows(file, RESULTS)}
        known = {sample: row for sample, row in known.items() if row["pass_files"]}
        samples = others(samples, known, options.samples, options.others)
    if not options.only_summary:
        if options.results is not None:
            write_passes([known[sample.sample] for sample in samples], written)
        else:
            author = Distill(name="distill-static") if options.static else replace(Tuned(), seconds=options.search)
            pool = AuthorPool(
                author, samples, Answers(written), device, options.processes, cores, options.out / "authors"
            )
            pool.start()
            pool.finish(end - options.budget / 3)
        measuring = Measuring(written, kept)
        pool = AuthorPool(measuring, samples, Answers(options.out / "measured"), device, options.processes, cores)
        pool.start()
        pool.finish(end)
    rows = [row for file in sorted(kept.glob("*.parquet")) for row in read_rows(file, RESULTS)]
    write_rows(options.out / "rows.parquet", rows, RESULTS)
    text = summary(rows, len(samples))
    (options.out / "summary.txt").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()

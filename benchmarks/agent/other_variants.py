"""Passes of `distill` on variants that they have no plans for: right, without an error, and not slower than eager?

    python3 -m benchmarks.agent.other_variants VERSION_DIR --samples 40 --others 5 --out DIR [--budget SECONDS]

Each pass is written for one variant of its sample: all regions that pay, or that there are, without a search. PassBench
then runs it on other variants of the same graph, at most 5 of a sample, evenly spread. Writes DIR/rows.parquet (rows of
`storage.schema.RESULTS`) and DIR/summary.txt. On a CPU kernels run in Triton's interpreter, and times mean nothing.
"""

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import torch

from agent.distill.tuned import Tuned
from agent.run.choose import Choice, chosen, evenly
from passbench.bench import Bench
from passbench.result import VariantResult
from passbench.settings import Settings
from storage.graph.as_json import to_json
from storage.parquet import write_rows
from storage.records import Sample
from storage.schema import CATEGORIES, RESULTS
from storage.versions.version import Version

LEVEL = -5
TOGETHER = 12
"""Passes that are compiled side by side."""


def split(sample: Sample, others: int) -> tuple[Sample, Sample] | None:
    """The sample with its first variant alone, and with others of that graph; None if there are none."""
    known = sample.variants[0]
    rest = tuple(v for v in sample.variants[1:] if to_json(v.graph) == to_json(known.graph))
    if not rest:
        return None
    return replace(sample, variants=(known,)), replace(sample, variants=evenly(rest, others))


def written(known: Sample, directory: Path) -> bool:
    """Writes the pass of a sample's variants; False if there is none."""
    author = Tuned()
    task = author._task(known)
    start = author._start(task)
    return task.write(start.patterns, start.style, directory).pass_dir is not None


def summary(results: Sequence[VariantResult], samples: int) -> str:
    """The counts, and how fast."""
    right = sum(r.status == "ok" and r.t_min is not None and r.t_min <= LEVEL for r in results)
    speeds = {clock: [s for r in results if (s := r.speedup(clock))] for clock in ("e2e", "device")}
    statuses = ", ".join(f"{count} {status}" for status, count in Counter(r.status for r in results).most_common())
    lines = [f"{len(results)} variants of {samples} samples: {statuses}; right at t = {LEVEL}: {right}"]
    for clock, found in speeds.items():
        if found:
            slow = sum(s < 0.95 for s in found)
            lines.append(f"{clock}: median {median(found):.3f} of eager's speed, {slow} of {len(found)} below 0.95")
    lines += [f"{r.sample} {r.variant_hash[:12]}: {r.status} {r.reason[:200]}" for r in results if r.status != "ok"]
    return "\n".join(lines) + "\n"


def run(bench: Bench, pairs: Sequence[tuple[Sample, Sample]], out: Path, end: float) -> list[VariantResult]:
    """Writes, compiles and measures passes until `end`, a time of `time.monotonic`."""
    results: list[VariantResult] = []
    for start in range(0, len(pairs), TOGETHER):
        lot = []
        for known, others in pairs[start : start + TOGETHER]:
            directory = out / "passes" / known.sample
            if time.monotonic() < end and written(known, directory):
                lot.append((others, directory))
        bench.prepare(lot)
        for others, directory in lot:
            if time.monotonic() < end:
                results += bench.run(others, "pass", directory)
                print(others.sample, ", ".join(r.status for r in results[-len(others.variants) :]), flush=True)
    return results


def main() -> None:
    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("version", type=Path, help="directory of a dataset version")
    add("--split", default="eval", help="eval, train, or eval,train")
    add("--categories", default=",".join(CATEGORIES))
    add("--samples", type=int, default=40)
    add("--others", type=int, default=5, help="variants of a sample, at most")
    add("--budget", type=float, default=3600.0, metavar="SECONDS", help="after these no further sample is begun")
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    add("--seed", type=int, help="of inputs")
    add("--out", type=Path, required=True, help="a directory that does not exist yet")
    options = parser.parse_args()
    end = time.monotonic() + options.budget
    options.out.mkdir(parents=True)
    choice = Choice(splits=tuple(options.split.split(",")), categories=tuple(options.categories.split(",")))
    samples = chosen(Version.open(options.version), choice)
    pairs = [pair for sample in samples if (pair := split(sample, options.others))]
    with Bench(options.device, Settings(seed=options.seed)) as bench:
        results = run(bench, evenly(tuple(pairs), options.samples), options.out, end)
    write_rows(
        options.out / "rows.parquet", [r.to_row(run="other-variants", author="distill") for r in results], RESULTS
    )
    text = summary(results, len({r.sample for r in results}))
    (options.out / "summary.txt").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()

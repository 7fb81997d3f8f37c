"""Benchmark samples of a version on this machine's GPU; needs only a GPU worker's libraries.

    python3 benchmarks/passbench/run_bench.py VERSION_DIR --authors eager,inductor,distill --out DIR

Writes DIR/results/*.parquet (rows of storage.schema.RESULTS, one file a sample and author, as they come), then
DIR/results.parquet, DIR/scores.json and DIR/summary.md. Run again with the same DIR, it goes on where it stopped.
"""

import argparse
import fcntl
import json
import math
import platform
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from agent.author import Attempt, Author, Interactive, Submission
from agent.distill.tuned import Tuned
from agent.registry import author as author_named
from passbench.bench import Bench
from passbench.compilers import NAMES
from passbench.result import VariantResult
from passbench.score import geometric_mean, score_rows
from passbench.scoring.groups import VariantFacts
from passbench.settings import Settings
from storage.records import Sample, Variant
from storage.schema import CATEGORIES, RESULTS
from storage.versions.provenance import library_versions
from storage.versions.samples import load_samples
from storage.versions.store import Version

_AHEAD = 24  # passes that are compiled together before they are timed one by one


def main() -> None:
    arguments = parse_arguments()
    version = Version.open(arguments.version)
    samples = part_of(chosen(version, arguments), arguments.part)
    parts = arguments.out / "results"
    parts.mkdir(parents=True, exist_ok=True)
    names, started, seconds = arguments.authors.split(","), time.monotonic(), {}
    settings = Settings(protocol=arguments.protocol, flush_l2=arguments.flush_l2)
    with Bench(arguments.device, settings) as bench:
        for name in names:
            begin = time.monotonic()
            left = [s for s in samples if not part(parts, name, s).exists()]
            if name in NAMES and name != "eager" and arguments.compile_ahead:
                for variant, reason in bench.precompile(left, name, arguments.compile_ahead):
                    print(f"{name}: {variant.variant_hash[:12]} not compiled ahead: {reason[:200]}", flush=True)
                seconds[f"{name}, compiling ahead"] = time.monotonic() - begin
                print(f"{name}: compiled ahead in {time.monotonic() - begin:.0f} s", flush=True)
            author = author_named(name)
            if arguments.search is not None and isinstance(author, Tuned):
                author.seconds = arguments.search
            with turn(arguments.lock):
                begin = time.monotonic()
                for number, sample in enumerate(left, 1):
                    if time.monotonic() - started > arguments.budget:
                        print(f"stopped at the budget of {arguments.budget} s: {name} at {number}", flush=True)
                        break
                    if arguments.passes is not None and name not in NAMES and number % _AHEAD == 1:
                        chunk = left[number - 1 : number - 1 + _AHEAD]
                        bench.prepare([(s, arguments.passes / s.sample) for s in chunk])
                    done = evaluate(bench, author, sample, arguments.passes)
                    table = pa.Table.from_pylist(done, RESULTS)
                    pq.write_table(table, part(parts, name, sample), compression="zstd")
                    print(f"[{number}/{len(left)}] {name} {sample.sample} {line(done)}", flush=True)
            seconds[name] = time.monotonic() - begin
    if not any(parts.iterdir()):
        sys.exit("no sample was run: none is chosen, or the budget was over before the first")
    finish(arguments.out, version, names, seconds)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", type=Path, help="directory of a dataset version")
    parser.add_argument("--authors", default="eager,inductor,distill")
    parser.add_argument(
        "--passes", type=Path, help="take distill's passes from DIR/SAMPLE; samples without are left out"
    )
    parser.add_argument("--split", default="eval", help="eval, train, or eval,train")
    parser.add_argument("--categories", default=",".join(CATEGORIES))
    parser.add_argument("--names", type=Path, help="a file with the names of the samples to take")
    parser.add_argument("--limit", type=int, default=None, help="samples")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="the I-th of N parts of the samples, from 0")
    parser.add_argument("--variants", type=int, default=None, help="stop taking samples at so many variants")
    parser.add_argument("--one-a-dtype", action="store_true", help="the first variant of each dtype of a sample alone")
    parser.add_argument(
        "--at-most", type=int, default=None, metavar="N", help="N variants of a sample, spread over all"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--protocol", default="passnet")
    parser.add_argument("--flush-l2", action="store_true")
    parser.add_argument(
        "--compile-ahead", type=int, default=0, help="processes that compile a baseline's samples first"
    )
    parser.add_argument("--search", type=float, default=None, help="seconds a sample that distill may measure")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds after which no further sample is begun")
    parser.add_argument("--lock", type=Path, help="file to lock while timing: others may compile ahead meanwhile")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


@contextmanager
def turn(lock: Path | None) -> Iterator[None]:
    """This process's turn on the device that `lock` stands for."""
    if lock is None:
        yield
        return
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def chosen(version: Version, arguments: argparse.Namespace) -> list[Sample]:
    """The samples to run, in the order of the version."""
    categories, samples, variants = arguments.categories.split(","), [], 0
    names = set(arguments.names.read_text().split()) if arguments.names else None
    for split in arguments.split.split(","):
        for sample in load_samples(version, split, categories):
            full = arguments.variants is not None and variants >= arguments.variants
            if full or (arguments.limit is not None and len(samples) >= arguments.limit):
                return samples
            if arguments.one_a_dtype:
                first = {floating_dtype(v): v for v in reversed(sample.variants)}
                sample = replace(sample, variants=tuple(v for v in sample.variants if v in first.values()))
            if arguments.at_most is not None:
                sample = replace(sample, variants=spread(sample.variants, arguments.at_most))
            if names is not None and sample.sample not in names:
                continue
            if arguments.passes is None or (arguments.passes / sample.sample).is_dir():
                samples.append(sample)
                variants += len(sample.variants)
    return samples


def spread(variants: tuple[Variant, ...], count: int) -> tuple[Variant, ...]:
    """At most `count` of them, in order and evenly spaced."""
    return tuple(variants[i * len(variants) // count] for i in range(count)) if len(variants) > count else variants


def part_of(samples: list[Sample], text: str) -> list[Sample]:
    """The samples that are this machine's or GPU's: "1/4" is the second of four parts."""
    number, _, count = text.partition("/")
    return samples[int(number) :: int(count)]


def floating_dtype(variant: Variant) -> str:
    """What a variant computes in, as scores are grouped; "" for all that is not floating: one kind."""
    dtype = VariantFacts.of([vars(x) for x in variant.inputs], ()).dtype
    return dtype if "float" in dtype else ""


def evaluate(bench: Bench, author: Author, sample: Sample, passes: Path | None) -> list[dict]:
    """Rows of one sample under one author."""
    name = author.name
    with tempfile.TemporaryDirectory() as temp:
        directory = Path(temp) / sample.sample
        if name not in NAMES and passes is not None:
            submission = Submission("pass", passes / sample.sample)
        elif isinstance(author, Interactive):

            def measure(some: Sample, place: Path) -> list[VariantResult]:
                return list(bench.run(some, "pass", place))

            say = partial(print, f"  {sample.sample}", flush=True)
            attempt = Attempt(1, str(bench.device), measure, lambda row: None, None, say)
            submission = author.attempt(sample, directory, attempt)
        else:
            submission = author.write(sample, directory)
        results = bench.run(sample, submission.compiler, submission.pass_dir)
        return [result.to_row(run=name, author=name, attempt=1) for result in results]


def part(parts: Path, name: str, sample: Sample) -> Path:
    """Where the rows of a sample under an author are kept."""
    return parts / f"{name}-{sample.sample}.parquet"


def line(rows: list[dict]) -> str:
    """Statuses and speedups of one sample."""
    statuses = Counter(row["status"] for row in rows)
    speedups = " ".join(f"{r['speedup_e2e']:.3f}/{r['speedup_device'] or 0:.3f}" for r in rows if r["speedup_e2e"])
    reasons = {row["reason"][:200] for row in rows if row["status"] != "ok"}
    return f"{dict(statuses)} {speedups} {sum(r['seconds'] for r in rows):.1f} s {' | '.join(sorted(reasons))}"


def finish(out: Path, version: Version, names: list[str], seconds: dict[str, float]) -> None:
    """Put the parts together, score and describe them."""
    table = pa.concat_tables(pq.read_table(p, schema=RESULTS) for p in sorted((out / "results").glob("*.parquet")))
    pq.write_table(table, out / "results.parquet", compression="zstd")
    rows = [{k: v for k, v in row.items() if k != "pass_files"} for row in table.to_pylist()]
    names = [name for name in names if any(row["author"] == name for row in rows)]
    scores = [
        score
        for name in names
        for clock in ("e2e", "device")
        for score in score_rows([r for r in rows if r["author"] == name], run=name, author=name, clock=clock)
    ]
    (out / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")
    text = summary(version, rows, names, seconds)
    (out / "summary.md").write_text(text)
    print(text)


def summary(version: Version, rows: list[dict], names: list[str], seconds: dict) -> str:
    """The record as Markdown: hardware, versions, and a line an author and category."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU"
    libraries = ", ".join(f"{k} {v}" for k, v in library_versions().items())
    text = [
        f"{device}; {libraries}; dataset digest {version.manifest.digest[:12]}.",
        "",
        "Speedups: geometric means over variants that ran, eager / candidate, of medians. ES and AS: docs/scores.md.",
        "",
        "| author | category | samples | variants | ok | t_min <= -5 | e2e | device | below eager | ES_-5 | AS e2e | "
        "AS device |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        for category in (*CATEGORIES, "all"):
            mine = [r for r in rows if r["author"] == name and category in (r["category"], "all")]
            if mine:
                text.append(table_line(name, category, mine))
    text += ["", *(f"- {name}: {took:.0f} s" for name, took in seconds.items())]
    text += ["", *(agreement(name, [r for r in rows if r["author"] == name]) for name in names if name == "eager")]
    failures = Counter((r["author"], r["status"], r["reason"][:160]) for r in rows if r["status"] != "ok")
    if failures:
        text += ["", "Failures:", *(f"- {a}: {n} x {s}: {why}" for (a, s, why), n in failures.most_common(30))]
    return "\n".join(text) + "\n"


def table_line(name: str, category: str, rows: list[dict]) -> str:
    """Figures of one author on one category."""
    e2e, on_device = ([r[f"speedup_{c}"] for r in rows if r[f"speedup_{c}"]] for c in ("e2e", "device"))
    tables = {c: score_rows(rows, run=name, author=name, clock=c) for c in ("e2e", "device")}
    level = {(s["clock"], s["t"]): s for table in tables.values() for s in table}

    def score(clock: str, column: str) -> str:
        return f"{level[clock, -5][column]:.3f}" if (clock, -5) in level else "-"

    figures = [
        name,
        category,
        len({r["sample"] for r in rows}),
        len(rows),
        sum(r["status"] == "ok" for r in rows),
        sum(r["status"] == "ok" and r["t_min"] <= -5 for r in rows),
        f"{geometric_mean(e2e):.3f}" if e2e else "-",
        f"{geometric_mean(on_device):.3f}" if on_device else "-",
        f"{sum(s < 1 for s in e2e) / len(e2e):.0%}" if e2e else "-",
        score("e2e", "es_t"),
        score("e2e", "aggregate"),
        score("device", "aggregate"),
    ]
    return "| " + " | ".join(str(figure) for figure in figures) + " |"


def agreement(name: str, rows: list[dict]) -> str:
    """How near speedups are to 1: the noise check, of eager against itself."""
    text = [f"{name} against itself, share of variants within 1, 2 and 3 % of 1.00, and geometric mean:"]
    for clock in ("e2e", "device"):
        speedups = np.array([r[f"speedup_{clock}"] for r in rows if r[f"speedup_{clock}"]])
        shares = ", ".join(f"{(abs(speedups - 1) <= w).mean():.1%}" for w in (0.01, 0.02, 0.03))
        text.append(f"{clock} {shares}, {math.exp(np.log(speedups).mean()):.4f} over {len(speedups)} variants;")
    return " ".join(text)


if __name__ == "__main__":
    main()

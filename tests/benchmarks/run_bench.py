"""Benchmark the evaluation samples of a version on this machine's GPU; needs only a GPU worker's libraries.

    python3 tests/benchmarks/run_bench.py VERSION_DIR --authors eager,inductor,distill --out DIR

Writes DIR/results.parquet (rows of storage.schema.RESULTS), DIR/scores.json and DIR/summary.md.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from agent.registry import author as author_named
from passbench.bench import Bench
from passbench.score import geometric_mean, score_rows
from passbench.settings import Settings
from storage.dataset import load_samples
from storage.provenance import library_versions
from storage.schema import CATEGORIES, RESULTS
from storage.versions import Version


def main() -> None:
    arguments = parse_arguments()
    version = Version.open(arguments.version)
    categories = arguments.categories.split(",")
    samples = load_samples(version, "eval", categories, limit=arguments.limit)
    arguments.out.mkdir(parents=True, exist_ok=True)
    rows, declined, started = [], Counter(), time.monotonic()
    seconds: dict[str, float] = {}
    with Bench(arguments.device, Settings(protocol=arguments.protocol)) as bench, tempfile.TemporaryDirectory() as temp:
        for name in arguments.authors.split(","):
            author, begin = author_named(name), time.monotonic()
            for number, sample in enumerate(samples, 1):
                if time.monotonic() - started > arguments.budget:
                    print(f"stopped at the budget of {arguments.budget} s: {name} has {number - 1} samples", flush=True)
                    break
                submission = author.write(sample, Path(temp) / name / sample.sample)
                declined[name] += submission.declined
                done = [
                    result.to_row(run=name, author=name, attempt=1)
                    for result in bench.run(sample, submission.compiler, submission.pass_dir)
                ]
                rows += done
                print(
                    f"[{number}/{len(samples)}] {name} {sample.sample} {line(done)} {submission.reason[:90]}",
                    flush=True,
                )
                pq.write_table(
                    pa.Table.from_pylist(rows, RESULTS), arguments.out / "results.parquet", compression="zstd"
                )
            seconds[name] = time.monotonic() - begin
    names = [name for name in arguments.authors.split(",") if any(row["author"] == name for row in rows)]
    scores = [
        score
        for name in names
        for clock in ("e2e", "device")
        for score in score_rows([r for r in rows if r["author"] == name], run=name, author=name, clock=clock)
    ]
    (arguments.out / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")
    text = summary(version, samples, rows, scores, names, declined, seconds)
    (arguments.out / "summary.md").write_text(text)
    print(text)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", type=Path, help="directory of a dataset version")
    parser.add_argument("--authors", default="eager,inductor,distill")
    parser.add_argument("--categories", default=",".join(CATEGORIES))
    parser.add_argument("--limit", type=int, default=None, help="evaluation samples")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--protocol", default="passnet")
    parser.add_argument("--budget", type=float, default=3600.0, help="seconds after which no further sample is begun")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def line(rows: list[dict]) -> str:
    """Statuses and speedups of one sample."""
    statuses = Counter(row["status"] for row in rows)
    speedups = " ".join(
        f"{row['speedup_e2e']:.2f}/{row['speedup_device'] or 0:.2f}" for row in rows if row["speedup_e2e"]
    )
    reasons = {row["reason"][:200] for row in rows if row["status"] != "ok"}
    return f"{dict(statuses)} {speedups} {' | '.join(sorted(reasons))}"


def summary(version, samples, rows, scores, names, declined, seconds) -> str:
    """The record as Markdown: hardware, versions, and a line an author."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU"
    libraries = ", ".join(f"{k} {v}" for k, v in library_versions().items())
    text = [
        f"{device}; {libraries}; dataset digest {version.manifest.digest[:12]}, {len(samples)} evaluation samples.",
        "",
        "Speedups: geometric means over variants that ran, eager / candidate, of medians. ES and AS: DESIGN section 5.",
        "",
        "| author | variants | ok | declined samples | e2e | device | below eager | ES_-5 | AS e2e | AS device | s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in names:
        mine = [row for row in rows if row["author"] == name]
        e2e = [row["speedup_e2e"] for row in mine if row["speedup_e2e"]]
        on_device = [row["speedup_device"] for row in mine if row["speedup_device"]]
        level = {(s["clock"], s["t"]): s for s in scores if s["author"] == name}
        figures = [
            name,
            len(mine),
            sum(row["status"] == "ok" for row in mine),
            declined[name],
            f"{geometric_mean(e2e):.3f}" if e2e else "-",
            f"{geometric_mean(on_device):.3f}" if on_device else "-",
            f"{sum(s < 1 for s in e2e) / len(e2e):.0%}" if e2e else "-",
            f"{level['e2e', -5]['es_t']:.3f}" if ("e2e", -5) in level else "-",
            f"{level['e2e', -5]['aggregate']:.3f}" if ("e2e", -5) in level else "-",
            f"{level['device', -5]['aggregate']:.3f}" if ("device", -5) in level else "-",
            f"{seconds[name]:.0f}" if name in seconds else "-",
        ]
        text.append("| " + " | ".join(str(figure) for figure in figures) + " |")
    failures = Counter((r["author"], r["status"], r["reason"][:140]) for r in rows if r["status"] != "ok")
    if failures:
        text += ["", "Failures:", *(f"- {a}: {n} x {s}: {why}" for (a, s, why), n in failures.most_common(30))]
    return "\n".join(text) + "\n"


if __name__ == "__main__":
    main()

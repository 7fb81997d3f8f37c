"""The same run several times: how far apart are AS and speedups of two runs of the same passes?

    python3 -m benchmarks.passbench.repeat_runs VERSION --out DIR [--runs 4] [--seed 7] [--budget 60] [--device cuda]
        [--side-by-side 2] -- OPTIONS OF agent.run
    python3 -m benchmarks.passbench.repeat_runs --rows FILE... --rows FILE...

Each run is a process of `python -m agent.run` with the same options and the same `--seed`, so that all draw the same
inputs, in DIR/run-K. `--side-by-side N`: N runs at a time, each on a GPU and a share of the cores of its own. DIR gets
`summary.md`, written anew after each run but the first: by author and clock, AS of each run on the variants that all
runs have, how far each is from the run before it, and how far apart a variant's speedups in two runs are; and how fast
the host was in each run. `--rows` compares runs that have ended: each names the files with one run's rows.
"""

import argparse
import itertools
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from passbench.names import CLOCKS
from passbench.score import aggregate_score
from passbench.timing.cores import on_cores
from storage.parquet import read_rows
from storage.schema import RESULTS

ROOT = Path(__file__).parents[2]


def run_all(given: argparse.Namespace, options: Sequence[str]) -> Iterator[int]:
    """All runs, some at a time, with these options of `agent.run`. Yields how many have ended."""
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // given.side_by_side
    for start in range(0, given.runs, given.side_by_side):
        running = []
        for place, number in enumerate(range(start, min(start + given.side_by_side, given.runs))):
            device = f"cuda:{place}" if given.device == "cuda" else given.device
            how = ["--seed", str(given.seed), "--budget", str(given.budget), "--device", device]
            command = ["-m", "agent.run", str(given.version), *how, "--out", str(given.out / f"run-{number}")]
            log = (given.out / f"run-{number}.log").open("wb")
            with log, on_cores(set(cores[place * share : (place + 1) * share])):
                running.append(subprocess.Popen([sys.executable, *command, *options], cwd=ROOT, stdout=log, stderr=log))
        for process in running:
            process.wait()
        yield start + len(running)


def compared(runs: Sequence[Sequence[dict]]) -> str:
    """What runs, each given by its rows, have in common and how far apart they are."""
    head = (
        "| author | clock | variants | AS of each run | each from the one before | speedups of two runs: median, 95 % |"
    )
    lines = [head, "|---" * 6 + "|"]
    for author in dict.fromkeys(row["author"] for row in runs[0]):
        by_variant = [{row["variant_hash"]: row for row in rows if row["author"] == author} for rows in runs]
        common = [variant for variant in by_variant[0] if all(variant in one for one in by_variant)]
        for clock in CLOCKS:
            scores = [aggregate_score([one[variant] for variant in common], clock) for one in by_variant]
            if not common or None in scores:
                continue
            steps = [f"{after / before - 1:+.2%}" for before, after in itertools.pairwise(scores)]
            column = f"speedup_{clock}"
            apart = sorted(
                abs(after[variant][column] / before[variant][column] - 1)
                for before, after in itertools.pairwise(by_variant)
                for variant in common
                if before[variant][column] and after[variant][column]
            )
            spread = f"{statistics.median(apart):.2%}, {apart[math.ceil(0.95 * len(apart)) - 1]:.2%}" if apart else "-"
            found = ", ".join(f"{score:.4f}" for score in scores)
            lines.append(f"| {author} | {clock} | {len(common)} | {found} | {', '.join(steps)} | {spread} |")
    return "\n".join(lines) + "\n"


def host_speeds(runs: Sequence[Sequence[dict]]) -> str:
    """What a fixed piece of Python took in each run: the median over its rows, which say it before and after each
    variant; empty where they do not say it."""
    said = [[dict(row["surroundings"] or ()).get("host_us") for row in rows] for rows in runs]
    known = [[float(us) for both in one if both for us in both.split(" → ")] for one in said]
    if not all(known):
        return ""
    medians = ", ".join(f"{statistics.median(one):.0f}" for one in known)
    return f"\nA fixed piece of Python took, median of each run: {medians} us.\n"


def _summary(runs: Sequence[Sequence[dict]]) -> str:
    """The text of `summary.md` for runs that are each given by their rows."""
    return compared(runs) + host_speeds(runs)


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", type=Path, nargs="?")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--rows", type=Path, nargs="+", action="append", metavar="FILE", help="of one run; twice or more"
    )
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of each run")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--side-by-side", type=int, default=1)
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given = parser.parse_args(sys.argv[1:end])
    if given.rows:
        if len(given.rows) < 2:
            parser.error("give --rows of two runs or more")
        print(_summary([[row for file in files for row in read_rows(file, RESULTS)] for files in given.rows]))
        return
    if given.version is None or given.out is None:
        parser.error("give a VERSION and --out, or --rows of runs that have ended")
    given.out.mkdir(parents=True, exist_ok=True)
    text = ""
    for ended in run_all(given, sys.argv[end + 1 :]):
        files = [given.out / f"run-{number}" / "results.parquet" for number in range(ended)]
        if missing := [file.parent.name for file in files if not file.exists()]:
            sys.exit(f"no rows of {', '.join(missing)}; see the logs beside them")
        runs = [read_rows(file, RESULTS) for file in files]
        if ended > 1:
            text = _summary(runs)
            (given.out / "summary.md").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()

"""PassBench on a GPU host in one command, within a few minutes:

    python3 -m tests.passbench.gpu_session --out DIR [--budget 240] [--jobs 6] [--samples 30] [--repeats 20]
        [--only aa,timing,attacks,honest,new,layers] [--device cuda] [--had VERDICTS.parquet ...]

1. eager against itself, and against a pass that repeats eager's calls, with nothing beside it: how near to 1, by the
   length of a call; variants a minute, where the time goes, every exchange (`benchmarks/passbench/aa_noise.py`);
2. `pytest -m gpu tests/passbench/timing`, with nothing beside it;
3. attacks with all layers on, `--jobs` processes side by side, over all GPUs, each with its share of the cores;
4. in the same way honest passes again and again, `--repeats` times or until the budget is over: each once before any
   comes a second time;
5. only where `--only` names it, `new`: attacks that have no verdict in the records that `--had` names, with all layers
   on and without; what `honest` finds there counts towards `--repeats`;
6. only where `--only` names it, `layers`: attacks with all layers on, then without the layer that stops them first,
   then without the next.

DIR gets a log of each step and `summary.md`. Exit 1 if a test fails, an attack scores or an honest pass is refused.
What the budget cuts off is said, not counted as a failure. Needs torch, triton, numpy, pandas, pyarrow and pytest.
"""

import argparse
import itertools
import math
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from passbench.timing.cores import on_cores
from tests.passbench.attacks.attack_table import ATTACKS, HONEST

ROOT = Path(__file__).parents[2]
VERSION = ROOT / "benchmarks" / "dedup" / "held_out_1"
_SHARES = {"aa": 0.42, "timing": 0.27}
"""Parts of the budget; attacks and honest passes have what is left."""

_IN_A_ROW = 5
"""Repeats of an honest pass in one process: half of a verdict's time is the start of one."""

_SIZES = (0, 5, 20, 60, 200, math.inf)  # microseconds of a call


def _shares(jobs: int) -> list[tuple[set[int], dict[str, str]]]:
    """The cores of each of so many processes that run side by side, and the environment that shows each one GPU.

    A benchmark's parent waits without sleeping, so that it needs two cores; where there are fewer, all share all.
    """
    cores = sorted(os.sched_getaffinity(0))
    listed = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(torch.cuda.device_count())))
    gpus = listed.split(",")
    each = len(cores) // jobs if len(cores) >= 2 * jobs else len(cores)
    starts = [n * each % len(cores) for n in range(jobs)]
    return [
        (set(cores[start : start + each]), {**os.environ, "CUDA_VISIBLE_DEVICES": gpus[n % len(gpus)]})
        for n, start in enumerate(starts)
    ]


def _run(name: str, out: Path, commands: Sequence[Sequence[str]], seconds: float) -> tuple[list[int | None], str]:
    """Run commands side by side, and end them after so many seconds. Returns their exit statuses, None for one that was
    ended, and what they have printed."""
    begin, logs = time.monotonic(), [out / f"{name}-{n}.log" for n in range(len(commands))]
    running = []
    for command, log, (cores, environment) in zip(commands, logs, _shares(len(commands)), strict=True):
        with log.open("wb") as stream, on_cores(cores):
            process = subprocess.Popen(
                [sys.executable, *command], cwd=ROOT, env=environment, stdout=stream, stderr=stream
            )
            running.append(process)
    statuses: list[int | None] = []
    for process in running:
        try:
            statuses.append(process.wait(max(1.0, begin + seconds - time.monotonic())))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            statuses.append(None)
    text = "\n".join(log.read_text("utf-8", "replace") for log in logs)
    print(f"{name}: {time.monotonic() - begin:.0f} s, exit {statuses}", flush=True)
    return statuses, text


def _verdicts(text: str) -> str:
    """What processes of run_attacks have said, added up: of one that was ended, too."""
    lines, names = text.splitlines(), {one.name for one in (*ATTACKS, *HONEST)}
    verdicts = [line for line in lines if line.split(" ", 1)[0] in names]
    unexpected = [" ".join(line.split()) for line in verdicts if "  EXPECTED " in line]
    tried = len({line.split(" ", 1)[0] for line in verdicts})
    left = [line for line in lines if "were not begun" in line]
    return "\n".join([f"{len(verdicts)} verdicts of {tried} passes, {len(unexpected)} unexpected", *left, *unexpected])


def against_itself(out: Path) -> str:
    """How near to 1 the speedups of each side are, by the length of a call, and how many variants a minute."""
    file = out / "aa" / "results.parquet"
    if not file.exists():
        return "no variant was measured"
    rows = pd.read_parquet(file)
    sides = {"eager": "Eager against itself", "pass": "A pass that repeats eager's calls"}
    found = [(title, rows[rows["author"] == side]) for side, title in sides.items()]
    return "\n\n".join(f"### {title}\n\n{_near_one(some)}" for title, some in found if len(some))


def _near_one(rows: pd.DataFrame) -> str:
    """The table of one side's rows, and whether targets are met."""
    timed = rows[rows["status"] == "ok"]
    phases: Counter[str] = Counter()
    for one in rows["phases"]:
        phases.update(dict(one))
    each = ", ".join(f"{name} {1000 * seconds / len(rows):.0f}" for name, seconds in phases.most_common(12))
    minute = 60 / rows["seconds"].mean(), 60 / rows["seconds"][1:].mean()
    lines = ["{} variants, {:.0f} a minute of their own time, {:.0f} without the first".format(len(rows), *minute)]
    failed = rows[rows["status"] != "ok"]["status"].value_counts()
    lines += [f"not timed: {status}, {count}" for status, count in failed.items()]
    lines += [f"milliseconds each: {each}", ""]
    lines += [
        "| clock | calls of eager | variants | median | within 1 %, 2 %, 3 % | interval, +- | noisy |",
        "|---" * 7 + "|",
    ]
    verdicts = [""]
    for clock, wanted in (("e2e", 0.03), ("device", 0.02)):
        timings = pd.DataFrame([t for row in timed["timings"] for t in row if t["clock"] == clock])
        if timings.empty:
            continue
        timings["off"] = timings["eager_us"] / timings["candidate_us"] - 1
        for least, most in (*itertools.pairwise(_SIZES), (0, math.inf)):
            if len(some := timings[timings["eager_us"].between(least, most)]):
                within = ", ".join(f"{(abs(some['off']) <= w).mean():.0%}" for w in (0.01, 0.02, 0.03))
                width = ((some["speedup_high"] - some["speedup_low"]) / 2).median()
                figures = f"{len(some)} | {1 + some['off'].median():.4f} | {within} | {width:.2%}"
                lines.append(f"| {clock} | {least} to {most} us | {figures} | {some['noisy'].mean():.0%} |")
        share, mean = (abs(timings["off"]) <= wanted).mean(), math.exp(np.log1p(timings["off"]).mean())
        met = "met" if share >= 0.95 and abs(mean - 1) <= 0.005 else "not met"
        verdicts.append(f"{clock}: {share:.1%} within {wanted:.0%}, geometric mean {mean:.4f}; 95 % and 0.5 %: {met}")
    return "\n".join([*lines, *verdicts])


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=240.0, help="seconds for all of it")
    parser.add_argument("--jobs", type=int, default=6, help="processes of attacks and honest passes side by side")
    parser.add_argument("--samples", type=int, default=30, help="samples of eager against itself, at most")
    parser.add_argument("--repeats", type=int, default=20, help="of each honest pass, at most")
    parser.add_argument("--only", default="aa,timing,attacks,honest", help="steps, separated by commas")
    parser.add_argument("--device", default="cuda", choices=("cpu", "cuda"), help="cpu: to try the steps without a GPU")
    parser.add_argument("--had", type=Path, nargs="*", default=[], help="records of attacks and honest passes")
    arguments = parser.parse_args()
    steps, out, end = arguments.only.split(","), arguments.out, time.monotonic() + arguments.budget
    jobs = arguments.jobs
    out.mkdir(parents=True, exist_ok=True)
    failed, text = False, []

    def left() -> float:
        return end - time.monotonic()

    if "aa" in steps:
        budget = arguments.budget if steps == ["aa"] else _SHARES["aa"] * arguments.budget
        names = str(VERSION / "names_2.txt")
        command = ["-m", "benchmarks.passbench.aa_noise", str(VERSION / "version"), "--names", names]
        command += ["--limit", str(arguments.samples), "--one-a-dtype", "--arrangements", "first", "--settled"]
        command += ["--sides", "eager,pass", "--budget", str(budget - 12), "--device", arguments.device]
        command += ["--out", str(out / "aa")]
        _run("aa", out, [command], budget)
        text += ["## Against eager itself", against_itself(out)]
    if "timing" in steps:
        budget = min(_SHARES["timing"] * arguments.budget, left())
        command = ["-m", "pytest", "-q", "-m", "gpu", "-rf", "-p", "no:cacheprovider", "tests/passbench/timing"]
        (status,), said = _run("timing", out, [command], budget)
        failed |= status not in (0, None)
        text += ["## Tests of timing", "\n".join(said.splitlines()[-12:]), "ended by the budget" * (status is None)]
    common = ["-m", "tests.passbench.attacks.run_attacks", "--device", arguments.device]
    had = ["--had", *map(str, arguments.had)]
    for step, wanted in (
        ("attacks", ["--all-layers", "--attacks-only"]),
        ("new", ["--attacks-only", *had]),
        ("honest", ["--honest-only", "--repeats", str(arguments.repeats), "--in-a-row", str(_IN_A_ROW), *had]),
        ("layers", ["--attacks-only"]),
    ):
        if step in steps and left() > 20:
            wanted += ["--budget", str(left() - 12), "--out"]
            parts = [[*common, *wanted, str(out / f"{step}-{n}"), "--part", f"{n}/{jobs}"] for n in range(jobs)]
            statuses, said = _run(step, out, parts, left() - 2)
            failed |= any(status not in (0, None) for status in statuses)
            text += [f"## {step}", _verdicts(said)]
    summary = "\n\n".join(filter(None, text)) + "\n"
    (out / "summary.md").write_text(summary)
    print(summary)
    sys.exit(failed)


if __name__ == "__main__":
    main()

"""PassBench on a GPU host in one command, within a few minutes:

    python3 -m tests.passbench.gpu_session --out DIR [--budget 240] [--jobs 6] [--samples 30] [--repeats 20]

1. eager against itself, with nothing beside it: shares within 3 % and 2 %, variants a minute, where the time goes;
2. `pytest -m gpu tests/passbench/timing`, with nothing beside it;
3. attacks with all layers on, and honest passes, `--jobs` processes side by side;
4. honest passes again and again, `--repeats` times or until the budget is over.

DIR gets a log of each step and `summary.md`. Exit 1 if a test fails, an attack scores or an honest pass is refused.
What the budget cuts off is said, not counted as a failure. Needs torch, triton, numpy, pandas, pyarrow and pytest.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[2]
VERSION = ROOT / "benchmarks" / "dedup" / "held_out_1"
_SHARES = {"eager against itself": 0.42, "timing": 0.27}
"""Parts of the budget; attacks and honest passes have what is left."""


def _run(name: str, out: Path, commands: Sequence[Sequence[str]], seconds: float) -> tuple[list[int | None], str]:
    """Run commands side by side, and end them after so many seconds. Returns their exit statuses, None for one that was
    ended, and what they have printed."""
    begin, logs = time.monotonic(), [out / f"{name}-{n}.log" for n in range(len(commands))]
    running = []
    for command, log in zip(commands, logs, strict=True):
        with log.open("wb") as stream:
            running.append(subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=stream, stderr=stream))
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
    """What processes of run_attacks have said, added up."""
    lines = text.splitlines()
    unexpected = [line for line in lines if line.startswith("UNEXPECTED")]
    totals = [line.split() for line in lines if " verdicts, " in line]
    left = [line for line in lines if "were not begun" in line]
    count = sum(int(words[0]) for words in totals)
    return "\n".join([f"{count} verdicts, {len(unexpected)} unexpected", *left, *unexpected])


def _against_itself(out: Path) -> str:
    """Shares of variants that are within 3 % and 2 %, and how many a minute."""
    files = sorted((out / "aa").glob("runs/*/*.parquet"))
    if not files:
        return "no variant was measured"
    rows = pd.concat([pd.read_parquet(file) for file in files])
    timed = rows[rows["status"] == "ok"]
    lines = [f"{len(rows)} variants, {60 * len(rows) / rows['seconds'].sum():.0f} a minute of their own time"]
    for clock, wanted in (("e2e", 0.03), ("device", 0.02)):
        speedups = timed[f"speedup_{clock}"].dropna()
        within = ", ".join(f"{(abs(speedups - 1) <= w).mean():.1%} within {w:.0%}" for w in (0.01, 0.02, 0.03))
        reached = (abs(speedups - 1) <= wanted).mean() >= 0.95 if len(speedups) else False
        verdict = "met" if reached else "not met"
        lines.append(f"{clock}: {within}; median {speedups.median():.4f}; 95 % within {wanted:.0%}: {verdict}")
    return "\n".join(lines)


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=240.0, help="seconds for all of it")
    parser.add_argument("--jobs", type=int, default=6, help="processes of attacks and honest passes side by side")
    parser.add_argument("--samples", type=int, default=30, help="samples of eager against itself, at most")
    parser.add_argument("--repeats", type=int, default=20, help="of each honest pass, at most")
    parser.add_argument("--only", default="aa,timing,attacks,honest", help="steps, separated by commas")
    arguments = parser.parse_args()
    steps, out, end = arguments.only.split(","), arguments.out, time.monotonic() + arguments.budget
    out.mkdir(parents=True, exist_ok=True)
    failed, text = False, []

    def left() -> float:
        return end - time.monotonic()

    if "aa" in steps:
        budget = _SHARES["eager against itself"] * arguments.budget
        names = str(VERSION / "names_2.txt")
        command = ["-m", "agent.run", str(VERSION / "version"), "--split", "eval", "--names", names, "--limit"]
        command += [str(arguments.samples), "--one-a-dtype", "--authors", "eager", "--budget", str(budget - 15)]
        _, said = _run("aa", out, [[*command, "--device", "cuda", "--out", str(out / "aa")]], budget)
        text += ["## Eager against itself", _against_itself(out)]
        text += [line for line in said.splitlines() if "milliseconds each" in line]
    if "timing" in steps:
        budget = min(_SHARES["timing"] * arguments.budget, left())
        command = ["-m", "pytest", "-q", "-m", "gpu", "-rf", "-p", "no:cacheprovider", "tests/passbench/timing"]
        (status,), said = _run("timing", out, [command], budget)
        failed |= status not in (0, None)
        text += ["## Tests of timing", "\n".join(said.splitlines()[-12:]), "ended by the budget" * (status is None)]
    for step, wanted in (("attacks", ["--all-layers", "--attacks-only"]), ("honest", ["--honest-only"])):
        if step in steps and left() > 20:
            repeats = arguments.repeats if step == "honest" else 1
            common = [
                "-m",
                "tests.passbench.attacks.run_attacks",
                "--device",
                "cuda",
                *wanted,
                "--repeats",
                str(repeats),
            ]
            common += ["--budget", str(left() - 12)]
            parts = [[*common, "--part", f"{n}/{arguments.jobs}"] for n in range(arguments.jobs)]
            statuses, said = _run(step, out, parts, left() - 2)
            failed |= any(status not in (0, None) for status in statuses)
            text += [f"## {step}", _verdicts(said)]
    summary = "\n\n".join(filter(None, text)) + "\n"
    (out / "summary.md").write_text(summary)
    print(summary)
    sys.exit(failed)


if __name__ == "__main__":
    main()

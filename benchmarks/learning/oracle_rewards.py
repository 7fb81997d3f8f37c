"""What known passes earn at tasks in Harbor's layout, how long a verdict takes, and whether a second one is the same.

    python -m benchmarks.learning.oracle_rewards --written DIR --demonstrations FILE --out FILE [--tasks 200]

Tasks are of demonstrations, in the variants that `make_demonstrations --check gpu` takes, and on a CPU of small ones.
Their samples are in journals of `make_demonstrations --check later`, and they are drawn at random from a seed. Each
task is written, its solve.sh writes the pass, and what the verifier has of the task is read back and judged as the
verifier judges it, on one benchmark that stays warm. Passes are compiled some at a time before they are judged, as
`evaluate` does, and one in `--again` of them is judged twice. Writes a JSON file after each few tasks; run again, it
goes on where it stopped.

`--part I/N` judges a part of the tasks. With `--parts FILE...` nothing is judged: the files of all parts become one.
Eight parts side by side on one GPU took 15.6 s a verdict in the median, one alone 2.2 and 2.5 s: give each a GPU of
its own.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from agent.learning import verify
from agent.learning.answers import files_of
from agent.learning.harbor import write_task
from agent.learning.reward import reward_of
from benchmarks.learning.checking.ways import GPU, INTERPRETER, LARGEST, chosen_variants
from benchmarks.learning.graph_sources import kept_sample
from benchmarks.learning.journals import journal
from passbench.bench import Bench
from passbench.result import device_name
from storage.disk import write_json
from storage.records import Sample

_TOGETHER = 8
"""Passes that are compiled at a time."""


def main() -> int:
    """Judge, and write the file after each few tasks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--written", type=Path, action="append", default=[])
    parser.add_argument("--demonstrations", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--again", type=int, default=5)
    parser.add_argument("--part", default="0/1", metavar="I/N")
    parser.add_argument("--parts", type=Path, nargs="+", default=[])
    arguments = parser.parse_args()
    if arguments.parts:
        return joined(arguments.parts, arguments.out)
    if not (arguments.written and arguments.demonstrations):
        parser.error("give --written and --demonstrations, or --parts")
    number, count = map(int, arguments.part.split("/"))
    if count > 1:  # of so few cores PassBench pins nothing
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[number::count])
    end = time.monotonic() + arguments.seconds
    rows = {row["graph_hash"]: row for row in pq.read_table(arguments.demonstrations).to_pylist()}
    lines = {line["graph_hash"]: line for place in arguments.written for line in journal(place) if not line["cause"]}
    largest = LARGEST[INTERPRETER if arguments.device == "cpu" else GPU]
    both = [g for g, line in lines.items() if g in rows and line["task"] == rows[g]["task"]]
    samples = {g: chosen_variants(kept_sample(lines[g]), 1, largest) for g in both}
    chosen = sorted(graph for graph, sample in samples.items() if sample)
    random.Random(arguments.seed).shuffle(chosen)
    chosen = chosen[: arguments.tasks][number::count]
    if not chosen:
        print("no demonstration has its sample in a journal", file=sys.stderr)
        return 1
    found = json.loads(arguments.out.read_text("utf-8"))["verdicts"] if arguments.out.exists() else []
    left = [graph for graph in chosen if graph not in {one["graph"] for one in found}]
    with tempfile.TemporaryDirectory() as place, Bench(arguments.device, verify.settings_of(arguments.device)) as bench:
        while left and time.monotonic() < end:
            graphs, left = [*left[:_TOGETHER], *left[: _TOGETHER : arguments.again]], left[_TOGETHER:]
            tasks = [
                task_of(samples[g], rows[g]["answer"], Path(place) / str(len(found) + n)) for n, g in enumerate(graphs)
            ]
            found += [{"graph": g} | one for g, one in zip(graphs, judged(bench, tasks, end), strict=False)]
            about = {"device": device_name(bench.device), "of": len(chosen), **summary(found)}
            write_json(arguments.out, about | {"verdicts": found})
    print(json.dumps(summary(found), indent=1))
    return 0


def joined(parts: Sequence[Path], out: Path) -> int:
    """Write the file that a run of all parts would have written; 1 where a part is missing."""
    if missing := [str(part) for part in parts if not part.exists()]:
        print(f"not written: {', '.join(missing)}", file=sys.stderr)
        return 1
    files = [json.loads(part.read_text("utf-8")) for part in parts]
    found = [verdict for file in files for verdict in file["verdicts"]]
    about = {"device": files[0]["device"], "of": sum(file["of"] for file in files), **summary(found)}
    write_json(out, about | {"verdicts": found})
    print(json.dumps(summary(found), indent=1))
    return 0


def task_of(sample: Sample, answer: str, place: Path) -> tuple[Sample, Path]:
    """A task as it is exported: the sample that its verifier has, and the pass that its solution writes."""
    write_task(sample, place / "task", files_of(answer))
    environment = {**os.environ, "PASSNET_PASSES": str(place / "pass")}
    subprocess.run([place / "task" / "solution" / "solve.sh"], env=environment, check=True)
    return verify.kept_sample(place / "task" / "tests" / "sample"), place / "pass"


def judged(bench: Bench, tasks: Sequence[tuple[Sample, Path]], end: float) -> list[dict[str, Any]]:
    """Rewards of these tasks' passes in order, as far as time goes; `seconds` has a part of what compiling took."""
    begin = time.monotonic()
    bench.prepare(tasks)
    share = (time.monotonic() - begin) / len(tasks)
    found = []
    for sample, passes in tasks:
        if time.monotonic() > end:
            break
        begin = time.monotonic()
        reward = reward_of(list(bench.run(sample, "pass", passes)))
        about = {"reward": reward.value, "speedup": reward.speedup, "status": reward.status, "reason": reward.reason}
        seconds = round(share + time.monotonic() - begin, 2)
        found.append({"sample": sample.sample, "variants": len(sample.variants)} | about | {"seconds": seconds})
    return found


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many tasks the solution earned something at, seconds, and how far two rewards of a pass are apart;
    None where time ended before any."""
    first: dict[str, Mapping[str, Any]] = {}
    apart = []
    for one in found:
        other = first.setdefault(one["graph"], one)
        if other is not one and one["reward"] and other["reward"]:
            apart.append(abs(one["reward"] / other["reward"] - 1.0))
    return {
        "tasks": len(first),
        "earning": sum(one["reward"] > 0 for one in first.values()),
        "statuses": dict(Counter(one["status"] for one in first.values())),
        "median_reward": median(one["reward"] for one in first.values()) if found else None,
        "median_seconds": median(one["seconds"] for one in found) if found else None,
        "most_seconds": max((one["seconds"] for one in found), default=None),
        "twice": len(apart),
        "twice_within_3_percent": sum(one <= 0.03 for one in apart),
        "farthest_apart": max(apart, default=None),
    }


if __name__ == "__main__":
    sys.exit(main())

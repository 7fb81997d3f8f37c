"""What known passes earn at tasks in Harbor's layout, how long a verdict takes, and whether a second one is the same.

    python -m benchmarks.learning.oracle_rewards --written DIR --demonstrations FILE --out FILE [--tasks 200]

Tasks are of demonstrations, in the variants that `make_demonstrations --check gpu` takes, and on a CPU of small ones.
Their samples are in journals of `make_demonstrations --check later`, and they are drawn at random from a seed. Each
task is written, its solve.sh writes the pass, and what the verifier has of the task is read back and judged as the
verifier judges it, on one benchmark that stays warm. Passes are compiled some at a time before they are judged, as
`evaluate` does, and one in `--again` of them is judged twice. Writes a JSON file after each few tasks; run again, it
goes on where it stopped.

`--side-by-side N` has N processes judge on one GPU, each with its own part of the cores: they compile and check side by
side, and take times in turns, one alone at a time. `--without FILE` leaves out graphs that an earlier file has.
`--part I/N` judges a part of the tasks. With `--parts FILE...` nothing is judged: the files of all parts become one.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Self

import pyarrow.parquet as pq

from agent.ahead.gpu_turns import GpuTurns
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
    parser.add_argument("--again", type=int, default=5, help="one task in so many is judged twice")
    parser.add_argument("--together", type=int, default=8, help="passes that a process compiles at a time")
    parser.add_argument("--side-by-side", type=int, default=1, metavar="N", help="processes on the GPU")
    parser.add_argument("--turns", type=Path, help="where they wait for one another; what a process is told")
    parser.add_argument("--without", type=Path, action="append", default=[], help="a file whose graphs are left out")
    parser.add_argument("--part", default="0/1", metavar="I/N")
    parser.add_argument("--parts", type=Path, nargs="+", default=[])
    arguments = parser.parse_args()
    if arguments.parts:
        return joined(arguments.parts, arguments.out)
    if not (arguments.written and arguments.demonstrations):
        parser.error("give --written and --demonstrations, or --parts")
    if arguments.side_by_side > 1:
        return side_by_side(arguments.side_by_side, arguments.out)
    number, count = map(int, arguments.part.split("/"))
    if count > 1:  # PassBench pins what it times to cores of these
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[number * len(cores) // count : (number + 1) * len(cores) // count] or cores)
    end = time.monotonic() + arguments.seconds
    rows = {row["graph_hash"]: row for row in pq.read_table(arguments.demonstrations).to_pylist()}
    lines = {line["graph_hash"]: line for place in arguments.written for line in journal(place) if not line["cause"]}
    largest = LARGEST[INTERPRETER if arguments.device == "cpu" else GPU]
    both = [g for g, line in lines.items() if g in rows and line["task"] == rows[g]["task"]]
    samples = {g: chosen_variants(kept_sample(lines[g]), 1, largest) for g in both}
    before = {graph for file in arguments.without for graph in judged_graphs(json.loads(file.read_text("utf-8")))}
    chosen = sorted(graph for graph, sample in samples.items() if sample and graph not in before)
    random.Random(arguments.seed).shuffle(chosen)
    chosen = chosen[: arguments.tasks][number::count]
    if not chosen:
        print("no demonstration has its sample in a journal", file=sys.stderr)
        return 1
    found = json.loads(arguments.out.read_text("utf-8"))["verdicts"] if arguments.out.exists() else []
    left = [graph for graph in chosen if graph not in {one["graph"] for one in found}]
    twice = set(chosen[:: arguments.again])
    settings = verify.settings_of(arguments.device)
    with (
        tempfile.TemporaryDirectory() as place,
        Bench(arguments.device, settings) as bench,
        InTurns(arguments.turns) as turns,
    ):
        while left and time.monotonic() < end:
            graphs, left = left[: arguments.together], left[arguments.together :]
            graphs += [graph for graph in graphs if graph in twice]
            tasks = [
                task_of(samples[g], rows[g]["answer"], Path(place) / str(len(found) + n)) for n, g in enumerate(graphs)
            ]
            found += [{"graph": g} | one for g, one in zip(graphs, judged(bench, tasks, end, turns), strict=False)]
            about = {"device": device_name(bench.device), "of": len(chosen), **summary(found)}
            write_json(arguments.out, about | {"verdicts": found})
    print(json.dumps(summary(found), indent=1))
    return 0


def side_by_side(count: int, out: Path) -> int:
    """Have so many processes judge a part each on one device, and join their files; 1 where one ended early."""
    with tempfile.TemporaryDirectory() as turns:
        parts = [out.with_name(f"{out.stem}_{n}_of_{count}{out.suffix}") for n in range(count)]
        options = [["--part", f"{n}/{count}", "--out", str(part)] for n, part in enumerate(parts)]
        common = [sys.executable, "-m", __spec__.name, *sys.argv[1:], "--side-by-side", "1", "--turns", turns]
        codes = [process.wait() for process in [subprocess.Popen([*common, *each]) for each in options]]
    return joined([part for part in parts if part.exists()] or parts, out) or int(any(codes))


class InTurns:
    """The GPU's turn of a process that benchmarks: with others while it checks, alone while it takes times.

    A context manager, which ends its turn, and a `Progress` of `Bench.run`: the stages that it is told of say which
    turn. `directory`: that of all processes on the GPU; without one nobody waits.
    """

    def __init__(self, directory: Path | None) -> None:
        turns = GpuTurns(directory) if directory else None
        self._of_stage = {"eager": turns.untimed, "timing": turns.author} if turns else {}
        self._held = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __call__(self, line: str) -> None:
        turn: Callable[[], AbstractContextManager[None]] | None = self._of_stage.get(line.rpartition(": ")[2])
        if turn is not None:
            self.end()
            self._held.enter_context(turn())

    def end(self) -> None:
        """Let others have the GPU."""
        self._held.close()


def judged_graphs(record: Mapping[str, Any]) -> Iterator[str]:
    """The graphs of the verdicts of a file, or of a record of several runs."""
    for run in record.get("runs", {"": record}).values():
        yield from (verdict["graph"] for verdict in run["verdicts"])


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


def judged(
    bench: Bench, tasks: Sequence[tuple[Sample, Path]], end: float, turns: "InTurns | None" = None
) -> list[dict[str, Any]]:
    """Rewards of these tasks' passes in order, as far as time goes; `seconds` has a part of what compiling took, and
    waiting for `turns`."""
    turns = turns or InTurns(None)
    begin = time.monotonic()
    bench.prepare(tasks)
    share = (time.monotonic() - begin) / len(tasks)
    found = []
    for sample, passes in tasks:
        if time.monotonic() > end:
            break
        begin = time.monotonic()
        reward = reward_of(list(bench.run(sample, "pass", passes, turns)))
        turns.end()
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

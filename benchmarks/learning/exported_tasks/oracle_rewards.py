"""What known passes earn at tasks in Harbor's layout, how long a verdict takes, and whether a second one is the same.

    python -m benchmarks.learning.exported_tasks.oracle_rewards --written DIR --demonstrations FILE --out FILE

`--tasks` are of demonstrations, drawn at random (`oracle_tasks.py`). All are written first, and each one's verifier is
asked what it gives where nothing was left. Then the solution's pass is judged as the verifier judges it, in processes
whose benchmark stays warm. Passes are compiled some at a time before they are judged, as `evaluate` does. Writes a JSON
file after each few tasks.

The first `--alone` tasks are judged by one process that has the GPU to itself, twice with `--again`. The others are
judged by `--side-by-side` processes. These disturb each other's times, so that they measure no longer where times are
noisy; and what earns nothing beside others is judged once more alone, which is the verdict that counts. `--without
FILE` leaves out graphs that earned in an earlier file; those that did not come first. Nothing is begun after
`--alone-seconds` and `--seconds`.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from statistics import median
from typing import Any

from agent.learning import verify
from agent.learning.reward import reward_of
from benchmarks.learning.checking.verdicts import judged_graphs
from benchmarks.learning.exported_tasks.oracle_tasks import drawn_tasks, earned_by_nothing, write_tasks, written_task
from benchmarks.learning.parts import begun
from passbench.bench import Bench
from passbench.result import device_name
from storage.disk import write_json
from storage.records import Sample

_UNPINNED = 3
"""With so few cores PassBench pins nothing. Where it pins, processes side by side would choose the same cores."""
_FOR_ALONE = 20.0
"""Seconds before the end after which nothing is begun side by side, so that what earned nothing is judged alone."""


def main() -> int:
    """Write the tasks, have them judged, and write the file."""
    arguments = _arguments()
    began = time.monotonic()
    records = [json.loads(file.read_text("utf-8")) for file in arguments.without]
    earned = {graph: earns for record in records for graph, earns in judged_graphs(record)}
    with tempfile.TemporaryDirectory(prefix="passnet-oracle-") as place:
        made = Path(place) / "tasks"
        tasks = drawn_tasks(arguments.written, arguments.demonstrations, arguments.seed, arguments.device, earned)
        count = write_tasks(tasks, arguments.tasks, made)
        if not count:
            print("no demonstration has its sample in a journal", file=sys.stderr)
            return 1
        nothing = [earned_by_nothing(made / str(n), arguments.device) for n in range(count)]
        about = {
            "of": count,
            "nothing_was_left": {"tasks": count, "earning": sum(reward > 0 for reward in nothing)},
            "preparing_seconds": round(time.monotonic() - began, 1),
        }
        print(json.dumps(about), flush=True)
        judging, end = Judging(arguments, Path(place), made, about), began + arguments.seconds
        alone = min(arguments.alone, count)
        judging.by(1, range(alone), min(time.monotonic() + arguments.alone_seconds, end), arguments.again)
        judging.by(arguments.side_by_side, range(alone, count), end - _FOR_ALONE)
        if arguments.side_by_side > 1:
            numbers = {(made / str(n) / "graph").read_text(): n for n in range(count)}
            judging.by(1, [numbers[one["graph"]] for one in judging.found["verdicts"] if not one["reward"]], end)
        print(json.dumps({name: value for name, value in judging.found.items() if name != "verdicts"}, indent=1))
    return int(judging.broke)


@dataclass
class Judging:
    """Processes that judge the tasks in `made`, what they have `found`, and whether one of them `broke`."""

    arguments: argparse.Namespace
    place: Path
    made: Path
    about: Mapping[str, Any]
    broke: bool = False

    @property
    def found(self) -> dict[str, Any]:
        """What all processes have written until now."""
        return dict(self.about) | joined(sorted(self.place.glob("*.json")))

    def by(self, processes: int, numbers: Sequence[int], end: float, again: bool = False) -> None:
        """Have so many processes judge these tasks, and write what was found. Nothing is begun after `end`, on the
        clock of `time.monotonic`."""
        before, judges = len([*self.place.glob("*.json")]), []
        for n in range(min(processes, len(numbers))):
            out = self.place / f"{before + n:03}.json"
            part = Part(self.made, numbers[n::processes], n, processes, self.arguments.together, again, end)
            judges.append(begun(judge_part, part, self.arguments.device, out))
        while left := [judge.sentinel for judge in judges if judge.is_alive()]:
            wait(left, 1.0)
            write_json(self.arguments.out, self.found)
        write_json(self.arguments.out, self.found)
        self.broke |= any(judge.exitcode for judge in judges)


@dataclass(frozen=True)
class Part:
    """What one process of `count` judges: the tasks of these numbers that are written in `made`, so many `together`, if
    `again` once more, until the `end`."""

    made: Path
    numbers: Sequence[int]
    number: int
    count: int
    together: int
    again: bool
    end: float


def judge_part(part: Part, device: str, out: Path) -> None:
    """Judge a part's tasks, and write the file after each few."""
    settings = verify.settings_of(device)
    if part.count > 1:
        os.sched_setaffinity(0, cores_of(part.number, part.count, sorted(os.sched_getaffinity(0))))
        settings = replace(settings, repeats=0)
    found: list[dict[str, Any]] = []
    with Bench(device, settings) as bench:
        for start in range(0, len(part.numbers), part.together):
            few = part.numbers[start : start + part.together]
            for again in (False, True) if part.again else (False,):
                places = [part.made / str(n) for n in few]
                verdicts = judged(bench, [written_task(place) for place in places], part.end)
                found += [
                    {"graph": (place / "graph").read_text(), "side_by_side": part.count, "again": again} | one
                    for place, one in zip(places, verdicts, strict=False)
                ]
                write_json(out, {"device": device_name(bench.device), "verdicts": found})


def cores_of(number: int, count: int, cores: Sequence[int]) -> set[int]:
    """The cores of a process of several: its own ones where they are enough to be pinned to, else a few that it shares
    with its neighbours."""
    size = len(cores) // count
    if size > _UNPINNED:
        return set(cores[number * size : (number + 1) * size])
    return {cores[(number + step) % len(cores)] for step in range(min(_UNPINNED, len(cores)))}


def joined(parts: Sequence[Path]) -> dict[str, Any]:
    """What the files of several processes say together."""
    files = [json.loads(part.read_text("utf-8")) for part in parts]
    found = [verdict for file in files for verdict in file["verdicts"]]
    about = {"device": files[0]["device"] if files else "", **summary(found)}
    of_kind = {str(one["side_by_side"]) for one in found}
    about["by_processes"] = {
        kind: summary([one for one in found if str(one["side_by_side"]) == kind]) for kind in sorted(of_kind)
    }
    return about | {"verdicts": found}


def judged(bench: Bench, tasks: Sequence[tuple[Sample, Path]], end: float) -> list[dict[str, Any]]:
    """Rewards of these tasks' passes in order, as far as time goes. `seconds` is what a verdict took with its part of
    `compiling`."""
    if time.monotonic() > end:
        return []
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
        seconds = {"compiling": round(share, 2), "seconds": round(share + time.monotonic() - begin, 2)}
        found.append({"sample": sample.sample, "variants": len(sample.variants)} | about | seconds)
    return found


def summary(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How many tasks the solution earned something at, seconds, and how far two rewards of a pass are apart; None where
    time ended before any. A task's first verdict counts, and where it was judged alone the first one alone."""
    first: dict[str, Mapping[str, Any]] = {}
    apart = []
    for one in sorted(found, key=lambda one: one["side_by_side"] > 1):
        other = first.setdefault(one["graph"], one)
        alone = one["side_by_side"] == other["side_by_side"] == 1
        if other is not one and alone and one["reward"] and other["reward"]:
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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--written", type=Path, action="append", required=True)
    parser.add_argument("--demonstrations", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--alone", type=int, default=0, metavar="N", help="tasks that one process judges first")
    parser.add_argument("--alone-seconds", type=float, default=1e9)
    parser.add_argument("--again", action="store_true", help="those are judged twice")
    parser.add_argument("--together", type=int, default=8, help="passes that a process compiles at a time")
    parser.add_argument("--side-by-side", type=int, default=1, metavar="N", help="processes on the GPU")
    parser.add_argument("--without", type=Path, action="append", default=[], help="a file of earlier verdicts")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

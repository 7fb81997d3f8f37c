"""What known passes earn at tasks in Harbor's layout, how long a verdict takes, and whether a second one is the same.

    python -m benchmarks.learning.exported_tasks.oracle_rewards --written DIR --demonstrations FILE --out FILE

`--tasks` are of demonstrations, drawn at random (`oracle_tasks.py`). All are written first, and each one's verifier is
asked what it gives where nothing was left. Then the solution's pass is judged as the verifier judges it, in processes
whose benchmark stays warm. Passes are compiled some at a time before they are judged, as `evaluate` does. Writes a JSON
file after each few tasks.

The first `--alone` tasks are judged by one process that has the GPU to itself, twice with `--again`. The others are
judged by `--side-by-side` processes, each with its own part of the cores: they compile and check side by side, and take
times in turns, one alone at a time. `--without FILE` leaves out graphs that an earlier file has. Nothing is begun
after `--alone-seconds` and `--seconds`.
"""

import argparse
import json
import os
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

from agent.ahead.gpu_turns import GpuTurns
from agent.learning import verify
from agent.learning.reward import reward_of
from benchmarks.learning.exported_tasks.oracle_tasks import drawn_tasks, earned_by_nothing, write_tasks, written_task
from passbench.bench import Bench
from passbench.result import device_name
from storage.disk import write_json
from storage.records import Sample


def main() -> int:
    """Write the tasks, have them judged, and write the file."""
    arguments = _arguments()
    if arguments.made:
        judge_part(arguments)
        return 0
    began = time.monotonic()
    before = {graph for file in arguments.without for graph in judged_graphs(json.loads(file.read_text("utf-8")))}
    with tempfile.TemporaryDirectory(prefix="passnet-oracle-") as place:
        made, turns = Path(place) / "tasks", Path(place) / "turns"
        turns.mkdir()
        tasks = drawn_tasks(arguments.written, arguments.demonstrations, arguments.seed, arguments.device, before)
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
        alone = min(arguments.alone, count)
        common = [sys.executable, "-m", __spec__.name, "--made", made, "--device", arguments.device]
        common += ["--together", arguments.together]

        def judged_by(processes: int, first: int, end: int, seconds: float, again: bool) -> None:
            """Have so many processes judge these tasks, and write what all have found until now."""
            parts = [Path(place) / f"{first}_{n}.json" for n in range(processes)]
            begun = []
            for n, part in enumerate(parts):
                options = ["--out", part, "--tasks-from", first, "--tasks-to", end, "--part", f"{n}/{processes}"]
                options += ["--seconds", seconds, *(["--turns", turns] if processes > 1 else [])]
                options += ["--again"] if again else []
                begun.append(subprocess.Popen([*map(str, common), *map(str, options)]))
            while any(process.poll() is None for process in begun):
                time.sleep(1.0)
                write_json(arguments.out, about | joined(sorted(Path(place).glob("*.json"))))
            codes.extend(process.returncode for process in begun)
            write_json(arguments.out, about | joined(sorted(Path(place).glob("*.json"))))

        codes: list[int] = []
        end = began + arguments.seconds
        if alone:
            judged_by(1, 0, alone, min(arguments.alone_seconds, end - time.monotonic()), arguments.again)
        if alone < count:
            judged_by(arguments.side_by_side, alone, count, end - time.monotonic(), False)
    found = json.loads(arguments.out.read_text("utf-8"))
    print(json.dumps({name: value for name, value in found.items() if name != "verdicts"}, indent=1))
    return int(any(codes))


def judge_part(arguments: argparse.Namespace) -> None:
    """Judge a part of the tasks that are written in `arguments.made`, and write the file after each few."""
    number, count = map(int, arguments.part.split("/"))
    if count > 1:  # PassBench pins what it times to cores of these
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, cores[number * len(cores) // count : (number + 1) * len(cores) // count] or cores)
    end = time.monotonic() + arguments.seconds
    numbers = range(arguments.tasks_from, arguments.tasks_to)[number::count]
    side_by_side = count if arguments.turns else 1
    found: list[dict[str, Any]] = []
    settings = verify.settings_of(arguments.device)
    with Bench(arguments.device, settings) as bench, InTurns(arguments.turns) as turns:
        for start in range(0, len(numbers), arguments.together):
            few = numbers[start : start + arguments.together]
            for again in (False, True) if arguments.again else (False,):
                places = [arguments.made / str(n) for n in few]
                verdicts = judged(bench, [written_task(place) for place in places], end, turns)
                found += [
                    {"graph": (place / "graph").read_text(), "side_by_side": side_by_side, "again": again} | one
                    for place, one in zip(places, verdicts, strict=False)
                ]
                write_json(arguments.out, {"device": device_name(bench.device), "verdicts": found})


class InTurns:
    """The GPU's turn of a process that benchmarks: with others while it checks, alone while it takes times.

    A context manager, which ends its turn, and a `Progress` of `Bench.run`: the stages that it is told of say which
    turn. `directory`: that of all processes on the GPU; without one nobody waits.
    """

    def __init__(self, directory: Path | None) -> None:
        turns = GpuTurns(directory) if directory else None
        self._of_stage = {"eager": turns.untimed, "timing": turns.author} if turns else {}
        self._held = ExitStack()
        self.waited = 0.0  # seconds

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def __call__(self, line: str) -> None:
        turn: Callable[[], AbstractContextManager[None]] | None = self._of_stage.get(line.rpartition(": ")[2])
        if turn is not None:
            self.end()
            begin = time.monotonic()
            self._held.enter_context(turn())
            self.waited += time.monotonic() - begin

    def end(self) -> None:
        """Let others have the GPU."""
        self._held.close()


def judged_graphs(record: Mapping[str, Any]) -> Iterator[str]:
    """The graphs of the verdicts of a file, or of a record of several runs."""
    for run in record.get("runs", {"": record}).values():
        yield from (verdict["graph"] for verdict in run["verdicts"])


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


def judged(
    bench: Bench, tasks: Sequence[tuple[Sample, Path]], end: float, turns: "InTurns | None" = None
) -> list[dict[str, Any]]:
    """Rewards of these tasks' passes in order, as far as time goes. `seconds` is what a verdict took with its part of
    `compiling`, but without `waiting` for `turns`."""
    if time.monotonic() > end:
        return []
    turns = turns or InTurns(None)
    begin = time.monotonic()
    bench.prepare(tasks)
    share = (time.monotonic() - begin) / len(tasks)
    found = []
    for sample, passes in tasks:
        if time.monotonic() > end:
            break
        begin, waited = time.monotonic(), turns.waited
        reward = reward_of(list(bench.run(sample, "pass", passes, turns)))
        turns.end()
        about = {"reward": reward.value, "speedup": reward.speedup, "status": reward.status, "reason": reward.reason}
        seconds = {"compiling": round(share, 2), "waiting": round(turns.waited - waited, 2)}
        seconds["seconds"] = round(share + time.monotonic() - begin - (turns.waited - waited), 2)
        found.append({"sample": sample.sample, "variants": len(sample.variants)} | about | seconds)
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


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--written", type=Path, action="append", default=[])
    parser.add_argument("--demonstrations", type=Path)
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
    parser.add_argument("--without", type=Path, action="append", default=[], help="a file whose graphs are left out")
    of_a_process = parser.add_argument_group("what a process that judges is told")
    of_a_process.add_argument("--made", type=Path, help="the tasks that are written")
    of_a_process.add_argument("--tasks-from", type=int, default=0)
    of_a_process.add_argument("--tasks-to", type=int, default=0)
    of_a_process.add_argument("--part", default="0/1", metavar="I/N")
    of_a_process.add_argument("--turns", type=Path, help="where they wait for one another")
    arguments = parser.parse_args()
    if not arguments.made and not (arguments.written and arguments.demonstrations):
        parser.error("give --written and --demonstrations")
    return arguments


if __name__ == "__main__":
    sys.exit(main())

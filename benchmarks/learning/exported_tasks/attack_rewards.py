"""What the attack fixtures earn as answers to exported tasks, judged as a task's verifier judges them.

    python -m benchmarks.learning.exported_tasks.attack_rewards --out FILE [--device cpu] [--seconds S]

Each attack that works on the device gets a task in Harbor's layout of its sample. The verifier's part of that task is
read back, and the attack's pass directory is judged. Patience is shorter than a verifier's. Writes a JSON file: the
reward and PassBench's verdict by attack; run again, it goes on where it stopped. `--side-by-side N` has N processes
judge on one GPU at the same time. Exit status 1 where an attack earns anything that eager would not.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.learning.harbor import write_task
from agent.learning.reward import reward_of
from agent.learning.verify import kept_sample, settings_of
from passbench.bench import Bench
from storage.disk import write_json
from tests.passbench.attacks.attack_kinds import NO_GAIN
from tests.passbench.attacks.attack_table import ATTACKS

_PATIENCE = {"call_timeout": 10.0, "first_call_timeout": 60.0}
"""Seconds: some attacks wait until they are ended."""


def main() -> int:
    """Judge, and write the file after each attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--side-by-side", type=int, default=1, metavar="N")
    parser.add_argument("--part", default="0/1", metavar="I/N", help="what a process of several is told")
    arguments = parser.parse_args()
    kind = arguments.device.partition(":")[0]
    chosen = [attack for attack in ATTACKS if kind in attack.devices]
    found: dict[str, dict] = {}
    if arguments.out.exists():
        found = json.loads(arguments.out.read_text("utf-8"))["attacks"]
    if arguments.side_by_side > 1:
        found |= _by_several(arguments.side_by_side, arguments.out)
        _write(arguments.out, arguments.device, len(chosen), found)
    else:
        number, count = map(int, arguments.part.split("/"))
        left = [attack for attack in chosen[number::count] if attack.name not in found]
        end, settings = time.monotonic() + arguments.seconds, replace(settings_of(arguments.device), **_PATIENCE)
        with Bench(arguments.device, settings) as bench, tempfile.TemporaryDirectory() as place:
            for attack in left:
                if time.monotonic() > end:
                    break
                task = Path(place) / attack.name
                write_task(attack.sample(), task)
                sample = kept_sample(task / "tests" / "sample")
                reward = reward_of(list(bench.run(sample, "pass", attack.directory)))
                found[attack.name] = {
                    "reward": reward.value,
                    "status": reward.status,
                    "reason": reward.reason.partition("\n")[0][:100],
                    "library calls, legal now": attack.steps[0] is NO_GAIN,
                }
                _write(arguments.out, arguments.device, len(chosen), found)
    print(f"{len(found)} of {len(chosen)} attacks; earning: {', '.join(earning(found)) or 'none'}")
    return int(bool(earning(found)))


def _by_several(count: int, out: Path) -> dict[str, dict]:
    """What so many processes have found, each in a part of the attacks."""
    with tempfile.TemporaryDirectory() as place:
        parts = [Path(place) / f"{n}.json" for n in range(count)]
        own = [["--side-by-side", "1", "--part", f"{n}/{count}", "--out", str(part)] for n, part in enumerate(parts)]
        command = [sys.executable, "-m", __spec__.name, *sys.argv[1:]]
        if out.exists():
            for part in parts:
                part.write_bytes(out.read_bytes())
        for process in [subprocess.Popen([*command, *each]) for each in own]:
            process.wait()
        files = [json.loads(part.read_text("utf-8")) for part in parts if part.exists()]
    return {name: one for file in files for name, one in file["attacks"].items()}


def _write(out: Path, device: str, of: int, found: Mapping[str, Mapping[str, Any]]) -> None:
    about = {"device": device, "tried": len(found), "of": of, "earning": earning(found)}
    write_json(out, about | {"attacks": dict(found)})


def earning(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The attacks that earn something, but those that only make library calls, which are legal now."""
    return [name for name, one in found.items() if one["reward"] and not one["library calls, legal now"]]


if __name__ == "__main__":
    sys.exit(main())

"""What the attack fixtures earn as answers to exported tasks, judged as a task's verifier judges them.

    python -m benchmarks.learning.attack_rewards --out FILE [--device cpu] [--seconds S]

Each attack that works on the device gets a task in Harbor's layout of its sample. The verifier's part of that task is
read back, and the attack's pass directory is judged with one benchmark for all. Writes a JSON file: the reward and
PassBench's verdict by attack. Exit status 1 where an attack earns anything that eager would not.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.learning.harbor import write_task
from agent.learning.reward import reward_of
from agent.learning.verify import kept_sample, settings_of
from passbench.bench import Bench
from tests.passbench.attacks.attack_kinds import NO_GAIN
from tests.passbench.attacks.attack_table import ATTACKS


def main() -> int:
    """Judge, and write the file after each attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=1e9)
    arguments = parser.parse_args()
    kind = arguments.device.partition(":")[0]
    chosen = [attack for attack in ATTACKS if kind in attack.devices]
    found: dict[str, dict] = {}
    if arguments.out.exists():
        found = json.loads(arguments.out.read_text("utf-8"))["attacks"]
    end = time.monotonic() + arguments.seconds
    with Bench(arguments.device, settings_of(arguments.device)) as bench, tempfile.TemporaryDirectory() as place:
        for attack in chosen:
            if attack.name in found or time.monotonic() > end:
                continue
            task = Path(place) / attack.name
            write_task(attack.sample(), task)
            sample = kept_sample(task / "tests" / "sample")
            reward = reward_of(list(bench.run(sample, "pass", attack.directory)))
            legal = attack.steps[0] is NO_GAIN
            found[attack.name] = {"reward": reward.value, "status": reward.status, "library calls, legal now": legal}
            about = {"device": arguments.device, "tried": len(found), "of": len(chosen), "earning": earning(found)}
            arguments.out.write_text(json.dumps(about | {"attacks": found}, indent=1) + "\n", "utf-8")
    print(f"{len(found)} of {len(chosen)} attacks; earning: {', '.join(earning(found)) or 'none'}")
    return int(bool(earning(found)))


def earning(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The attacks that earn something, but those that only make library calls, which are legal now."""
    return [name for name, one in found.items() if one["reward"] and not one["library calls, legal now"]]


if __name__ == "__main__":
    sys.exit(main())

"""Builds that are killed with SIGKILL at random moments and run again end with the bytes of one that was not killed.

    python -m benchmarks.extraction.build_kills --models timm:resnet10t --kills 30 --out FILE

Every build has a data directory of its own. It is killed, with all its processes, at a moment drawn evenly from the
time that an undisturbed one takes, then run to its end. Compared are the SHA-256 of every shard but the models'. FILE
gets a JSON line a build: when it was killed, what was finished by then, and whether the version is the same. Exits with
1 if one differs, or half a version is seen.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from storage.versions.store import Store
from tests.flows.commands import PASSNET

STAGES = (
    "traces",
    "shards/*/cut",
    "shards/*/typical",
    "work/*/subgraphs",
    "shards/*/varied/*",
    "work/*/unique",
    "versions/v1",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["timm:resnet10t"])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    draw, bad = random.Random(arguments.seed), 0
    with tempfile.TemporaryDirectory() as temp, arguments.out.open("w") as out:
        root = Path(temp)
        catalog = root / "catalog.txt"
        catalog.write_text("\n".join(arguments.models) + "\n")
        begin = time.monotonic()
        start(catalog, root / "undisturbed").wait()
        seconds, expected = time.monotonic() - begin, contents(root / "undisturbed")
        for number in range(arguments.kills):
            data, moment = root / f"data{number}", draw.uniform(0, seconds)
            process = start(catalog, data)
            time.sleep(moment)
            os.killpg(process.pid, signal.SIGKILL)
            killed = process.wait() == -signal.SIGKILL
            reached = [stage for stage in STAGES if any(data.glob(f"{stage}/*"))]
            half = bool(Store(data).names()) and contents(data) != expected
            code = start(catalog, data).wait()
            same = code == 0 and contents(data) == expected
            bad += half or not same
            line = {
                "killed_at_s": round(moment, 2),
                "of_s": round(seconds, 2),
                "killed": killed,
                "reached": reached[-1:],
            }
            line |= {"half_a_version": half, "same_bytes": same}
            print(json.dumps(line), file=out, flush=True)
            print(f"[{number + 1}/{arguments.kills}] {line}", flush=True)
    return int(bad > 0)


def start(catalog: Path, data: Path) -> subprocess.Popen:
    """A build in a session of its own."""
    command = [PASSNET, "build", "--catalog", str(catalog), "--data", str(data)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)


def contents(data: Path) -> dict[str, str]:
    """SHA-256 of every shard of the newest version, but for the models', which say how long each was traced."""
    newest = Store(data).latest()
    if newest is None:
        return {}
    newest.verify()
    return {shard.path: shard.sha256 for shard in newest.manifest.shards if shard.config != "models"}


if __name__ == "__main__":
    sys.exit(main())

"""Kill the process that keeps traces at random moments, go on each time, and compare with an undisturbed store.

    python -m benchmarks.extraction.trace_faults --writes 30 --out benchmarks/extraction/tracing/faults.json

Six small models are traced once. A process adds their outcomes to a store, one file each, and gets SIGKILL at a random
moment; the next goes on with whatever is left. In the end each file must have the bytes of an undisturbed store.
Exits 1 where anything differs. Tracing itself is not killed here: a killed trace leaves nothing.
"""

import argparse
import json
import multiprocessing
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from extraction.pool.client import Pool
from extraction.sources.catalog import parse_entry
from extraction.sources.spec import specified
from extraction.tracing.limits import MEMORY_MB, TIMEOUT_S
from extraction.tracing.trace_files import TraceOutcome
from extraction.tracing.trace_store import TraceStore
from extraction.tracing.trace_workers import trace_all

MODELS = (
    "timm:resnet10t",
    "timm:test_resnet",
    "timm:test_vit",
    "timm:test_efficientnet",
    "timm:test_convnext",
    "timm:test_mambaout",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writes", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as scratch:
        result = killed_writes(Path(scratch), draw, arguments.writes)
    arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    raise SystemExit(0 if all(value for name, value in result.items() if name.endswith("identical")) else 1)


def killed_writes(scratch: Path, draw: random.Random, kills: int) -> dict[str, Any]:
    """Kills processes that write to a store until there were `kills`; each store is finished by one that is not."""
    with Pool(workers=1, timeout_s=TIMEOUT_S, memory_mb=MEMORY_MB) as pool:
        outcomes = list(trace_all(specified([parse_entry(model) for model in MODELS]), pool))
    write(scratch / "first", outcomes)  # reads the libraries' configs, which takes longer than the writes
    started = time.monotonic()
    write(scratch / "calm", outcomes)
    whole = time.monotonic() - started
    killed, stores, partial, identical = 0, 0, 0, True
    while killed < kills:
        directory = scratch / f"killed{(stores := stores + 1)}"
        while killed < kills:
            process = multiprocessing.get_context("fork").Process(target=write, args=(directory, outcomes))
            process.start()
            process.join(draw.uniform(0, whole))
            process.kill()
            process.join()
            if process.exitcode == 0:
                break
            killed += 1
            partial += len(list(directory.glob("**/.*.partial")))
        write(directory, outcomes)
        identical &= contents(directory) == contents(scratch / "calm") != {}
    return {"writes_killed": killed, "stores": stores, "partial_files_seen": partial, "writes_identical": identical,
            "seconds_of_a_calm_write": round(whole, 3)}  # fmt: skip


def write(directory: Path, outcomes: Sequence[TraceOutcome]) -> None:
    """Adds the outcomes that the store lacks, one at a time, as a build does with its shards."""
    store = TraceStore(directory)
    missing = {entry.text for entry in store.missing(specified([outcome.entry for outcome in outcomes]))}
    for outcome in sorted(outcomes, key=lambda each: each.row["model"]):
        if outcome.entry.text in missing:
            store.add([outcome])


def contents(directory: Path) -> dict[str, bytes]:
    """File name → bytes, of what a store reads; a partial file of a killed process is none of that."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("**/[!.]*.parquet"))}


if __name__ == "__main__":
    main()

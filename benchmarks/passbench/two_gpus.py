"""The same samples through the flow `evaluate-model` on one device and on several: seconds, speed-up, scores.

    python3 benchmarks/passbench/two_gpus.py DATA --devices cuda:0,cuda:1 --author distill-static --limit 40 --out DIR

DATA is a data directory, or the directory of a version; `cpu:2` instead of GPUs tries it out on two slots of the CPU.
The flow runs against a server of its own below DIR, on a version that has the chosen variants alone. Writes
DIR/two_gpus.json, after each run what there is by then.
"""

import argparse
import json
import math
import os
import platform
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

STATUS, LEVEL = ("status", "t_min"), -5


def main() -> None:
    arguments = parse_arguments()
    if (arguments.out / "two_gpus.json").exists():
        sys.exit(f"{arguments.out} holds a measurement: what is finished would not be measured again")
    os.environ["PREFECT_HOME"] = str((arguments.out / "prefect").resolve())
    os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] = "false"
    os.environ.setdefault("PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS", "120")
    os.environ.pop("PREFECT_API_URL", None)  # an ephemeral server, which the first flow run starts
    from flows.evaluate_model import evaluate_model
    from storage.versions.provenance import library_versions
    from storage.versions.store import Store

    devices = arguments.devices.split(",")
    device = [devices[0], arguments.devices]
    if arguments.devices.startswith("cpu:"):
        device[0] = "cpu:1"
    record = {
        "devices": arguments.devices,
        "author": arguments.author,
        "cores": len(os.sched_getaffinity(0)),
        "libraries": library_versions(),
        "kernel": platform.release(),
        "runs": [],
    }
    results = []
    for number, where in enumerate(device):
        data = arguments.out / f"data{number}"
        record |= chosen(arguments, data)
        if number == 0:  # starts the server, and brings torch and Triton into the page cache
            evaluate_model(author="eager", data=str(data), device=where, limit=1)
        begin = time.monotonic()
        done = evaluate_model(author=arguments.author, data=str(data), device=where)
        rows = Store(data).latest().table("results").to_pylist()
        results.append({(r["sample"], r["variant_hash"]): r for r in rows if r["author"] == arguments.author})
        record["device"] = done["device"]
        record["runs"].append(
            {
                "devices": where,
                "seconds": done["seconds"],
                "wall_seconds": time.monotonic() - begin,
                "uses": done["devices"],
                "aggregate": done["runs"][0]["aggregate"],
                "geometric_mean": {clock: mean(results[-1].values(), clock) for clock in ("e2e", "device")},
                "statuses": Counter(row["status"] for row in results[-1].values()),
                "noisy": sum(t["noisy"] for r in results[-1].values() for t in r["timings"] if t["clock"] == "e2e"),
            }
        )
        if number:
            record |= compared(*results) | {
                "speedup": record["runs"][0]["seconds"] / record["runs"][1]["seconds"],
                "speedup_at_work": at_work(record["runs"][0]) / at_work(record["runs"][1]),
                "same_run_id": len({run for found in results for run in {r["run"] for r in found.values()}}) == 1,
                "same_order": [*results[0]] == [*results[1]],
            }
        (arguments.out / "two_gpus.json").write_text(json.dumps(record, indent=1) + "\n")
        print(json.dumps(record["runs"][-1]), flush=True)
    print(json.dumps({k: v for k, v in record.items() if k not in ("runs", "libraries")}, indent=1))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="a data directory, or a version's")
    parser.add_argument("--devices", default="cuda:0,cuda:1", help="two or more; the first alone is the comparison")
    parser.add_argument("--author", default="distill-static")
    parser.add_argument("--category", default="fusible")
    parser.add_argument("--limit", type=int, default=40, help="samples")
    parser.add_argument("--variants", type=int, default=2, help="of a sample at most, spread over its own")
    parser.add_argument("--most-elements", type=int, default=None, help="leave out variants with larger inputs")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def chosen(arguments: argparse.Namespace, data: Path) -> dict:
    """Publish the chosen samples, with few variants each, as the version of a new data directory; how many."""
    from storage.versions.samples import load_samples
    from storage.versions.store import Store
    from storage.versions.version import Version
    from tests.support.stores import publish_samples

    is_version = (arguments.data / "manifest.json").exists()
    version = Version.open(arguments.data) if is_version else Store(arguments.data).open()
    samples = []
    for sample in load_samples(version, "eval", [arguments.category]):
        fitting = [
            v for v in sample.variants if arguments.most_elements is None or elements(v) <= arguments.most_elements
        ]
        if fitting and len(samples) < arguments.limit:
            step = max(1, len(fitting) // arguments.variants)
            samples.append(replace(sample, variants=tuple(fitting[::step][: arguments.variants])))
    if not Store(data).names():
        publish_samples(samples, data)
    return {
        "dataset": version.manifest.digest[:12],
        "samples": len(samples),
        "variants": sum(len(sample.variants) for sample in samples),
    }


def elements(variant) -> int:
    """Elements of its inputs."""
    return sum(math.prod(each.shape) for each in variant.inputs)


def at_work(run: dict) -> float:
    """Seconds until the last device was through, but for starting its process: what remains in a long run."""
    return max(use["seconds"] for use in run["uses"])


def mean(rows, clock: str) -> float | None:
    """Geometric mean of the speedups that were measured."""
    logs = [math.log(row[f"speedup_{clock}"]) for row in rows if row[f"speedup_{clock}"]]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def compared(one: dict, many: dict) -> dict:
    """Rows that differ in status or in being right at t = -5, and how far the speedups of a variant are apart."""
    differ, apart = [], []
    for key in sorted(one.keys() | many.keys()):
        rows = (one.get(key), many.get(key))
        if None in rows or len({(r["status"], (r["t_min"] or 0) <= LEVEL) for r in rows}) > 1:
            differ.append([*key, *([r and [r[name] for name in STATUS] for r in rows])])
        elif rows[0]["speedup_e2e"]:
            apart.append(math.log(rows[1]["speedup_e2e"] / rows[0]["speedup_e2e"]))
    shares = sorted(map(abs, apart))
    return {
        "rows_that_differ": differ,
        "speedup_ratio_mean": math.exp(math.fsum(apart) / len(apart)) if apart else None,
        "speedup_ratio_off_by_median": math.expm1(shares[len(shares) // 2]) if shares else None,
    }


if __name__ == "__main__":
    main()

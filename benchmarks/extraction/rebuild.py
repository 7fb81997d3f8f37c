"""`build-dataset` of one catalogue after the other in one data directory: what each build costs by stage.

    python -m benchmarks.extraction.rebuild --catalog FILE --catalog GROWN_FILE --workers 2 --out DIR

Each build is a process of its own, so that no memory and no warm worker is left from the one before. The flow runs as a
plain function. For each stage: wall time, processor time of the flow's process and of its workers, the most memory that
the flow's process had resident, and what DIR/data grew by. Writes DIR/rebuild.json, a record a build.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from benchmarks.extraction.hub_catalog import Meter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalog", action="append", required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--points", type=int, default=None, help="shape points of a subgraph at most")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # the process of one build
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps(build(arguments.catalog[-1], arguments)))
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    records = []
    for catalog in arguments.catalog:
        load = os.getloadavg()
        command = [sys.executable, "-m", __spec__.name, *sys.argv[1:], "--catalog", catalog, "--inside"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        records.append(json.loads(done.stdout.splitlines()[-1]) | {"load": [load, os.getloadavg()]})
        (arguments.out / "rebuild.json").write_text(json.dumps(records, indent=1) + "\n")
    print(table(records))


def build(catalog: str, arguments: argparse.Namespace) -> dict:
    """Build a catalogue, with a look at this process and its workers wherever a stage ends."""
    from flows.build_dataset import build_dataset
    from flows.progress import Progress, listening
    from storage.versions.provenance import library_versions

    meter = Meter(arguments.out)

    def heard(event: Progress) -> None:
        if event.stage != meter.stage:
            meter.enter(event.stage)

    with listening(heard):
        done = build_dataset.fn(
            catalog=catalog, data=str(arguments.out / "data"), workers=arguments.workers, points=arguments.points
        )
    meter.enter("end")
    return {
        "catalog": Path(catalog).name,
        "stages": {name: spent.rounded() for name, spent in meter.spent.items()},
        "summary": {key: value for key, value in done.items() if key not in ("path", "dropped", "failures", "causes")},
        "workers": arguments.workers,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "libraries": library_versions(),
    }


def table(records: list[dict]) -> str:
    """The builds side by side: processor seconds of the flow's process and of its workers."""
    lines = [f"| processor seconds, flow + workers | {' | '.join(record['catalog'] for record in records)} |"]
    lines.append("|---|" + "---|" * len(records))
    for stage in dict.fromkeys(stage for record in records for stage in record["stages"]):
        spent = [record["stages"].get(stage) for record in records]
        cells = [f"{s['flow_processor_s']} + {s['workers_processor_s']}" if s else "" for s in spent]
        lines.append(f"| {stage} | {' | '.join(cells)} |")
    sums = [
        sum(s["flow_processor_s"] + s["workers_processor_s"] for s in record["stages"].values()) for record in records
    ]
    lines.append(f"| in all | {' | '.join(f'{total:.1f}' for total in sums)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()

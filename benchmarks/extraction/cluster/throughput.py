"""Cutting and varying a catalogue by local workers and on Ray clusters of some nodes of this machine: time by layout.

    python -m benchmarks.extraction.cluster.throughput local:1 local:2 ray:1 ray:3 --catalog LIST --data DIR --out OUT

DIR/traces holds the models' traces (`benchmarks.extraction.trace_corpus`). `local:N` is N workers, `ray:N` N nodes of
one core each and a head without any. Each layout begins with the traces alone, in a process of its own. Noted are wall
time from the first task to the last row, with the start of workers in it and that of the cluster not; processor seconds
of all processes of the layout, Ray's own included; and a digest of the rows, which must be the same everywhere.
"""

import argparse
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

_TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layouts", nargs="+", help="each local:N or ray:N")
    parser.add_argument("--catalog", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--inside", metavar="LAYOUT", help=argparse.SUPPRESS)  # the process of one layout
    arguments = parser.parse_args()
    if arguments.inside:
        print(json.dumps(measured(arguments.inside, arguments.catalog, arguments.data)))
        return
    records = []
    for layout in arguments.layouts:
        command = [sys.executable, "-m", __spec__.name, *sys.argv[1:], "--inside", layout]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        records.append(json.loads(done.stdout.splitlines()[-1]))
        print(json.dumps(records[-1]), flush=True)
        told = {"kernel": platform.release(), "cores": len(os.sched_getaffinity(0)), "layouts": records}
        arguments.out.write_text(json.dumps(told, indent=1) + "\n")
    if len({record["digest"] for record in records}) > 1:
        raise SystemExit("the layouts did not make the same")


def measured(layout: str, catalog: str, data: Path) -> dict[str, Any]:
    """The record of one layout."""
    import pyarrow.parquet as pq

    from dedup.database import Engine
    from extraction.sources.catalog import read_catalog
    from extraction.sources.spec import specified
    from extraction.tracing.trace_store import TraceStore
    from flows.build.pools import pool_on
    from flows.build.subgraphs import cut, digest_of, vary, working
    from flows.build.traced import find_traces
    from tests.support.ray_cluster import ray_cluster

    runner, _, number = layout.partition(":")
    with tempfile.TemporaryDirectory() as scratch, ray_cluster(int(number)) if runner == "ray" else nullcontext():
        root = Path(scratch)
        shutil.copytree(data / "traces", root / "traces")
        traced = find_traces(TraceStore(root / "traces"), specified(read_catalog(catalog, None)))
        limits = {"timeout_s": 900.0, "memory_mb": 8192}
        workers = int(number) if runner == "local" else None
        before, began, load = processor_s(), time.monotonic(), os.getloadavg()[0]
        with (
            working(root, digest_of(traced, 1)) as work,
            Engine(work.of_build / "engine") as engine,
            pool_on(runner, workers=workers, **limits) as pool,
        ):
            subgraphs = cut(traced, work, pool, engine)
            variants = vary(subgraphs, 1, work, pool, engine)
            wall, spent = time.monotonic() - began, processor_s() - before
            shards = sum(1 for path in work.shards.rglob("*.parquet") if "repeats" not in path.parts)
            rows = sum(variants.counts.values())
            made = repr([pq.read_table(path).to_pylist() for path in variants.paths]).encode()
            return {
                "layout": layout,
                "shards": shards,
                "rows": rows,
                "wall_s": round(wall, 1),
                "processor_s": round(spent, 1),
                "done_on": dict(getattr(pool, "done_on", {})),
                "load": [round(load, 1), round(os.getloadavg()[0], 1)],
                "digest": hashlib.sha256(made).hexdigest()[:16],
            }


def processor_s() -> float:
    """Processor seconds of this process, of all its living descendants and of those that they waited for."""
    parents, seconds = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        process = int(stat.parent.name)
        parents[process] = int(fields[1])
        seconds[process] = sum(map(int, fields[11:15])) / _TICKS
    found, new = set(), {os.getpid()}
    while new:
        found |= new
        new = {process for process, parent in parents.items() if parent in new} - found
    return sum(seconds[process] for process in found if process in seconds)


if __name__ == "__main__":
    main()

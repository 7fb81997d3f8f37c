"""Demonstrations whose float32 results are not eager's bit for bit, checked again on many more draws.

    python -m benchmarks.learning.checking.recheck --demonstrations FILE --written DIR --out FILE --record FILE

Sums that cancel are wrong in one draw of hundreds. In float32 t = -5 allows 11 units in the last place, in half types a
whole unit, so that there one rounding more or less is never wrong. Doubtful are rows that `own_passes` checked in
float32 on a GPU and that are right at t = -5 only. Each whose sample is in a journal is checked on `--draws` further
draws, by `--workers` processes on one GPU, but for those that the records of `--without` have. The file of `--out` has
all rows but those that were found wrong. Nothing is begun after `--seconds`; what is `left` stays doubtful.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from agent.learning.answers import files_of
from agent.learning.reward import LEVEL
from benchmarks.learning.checking.own_passes import OwnPasses
from benchmarks.learning.checking.verdicts import BY_OWN_PROCESS
from benchmarks.learning.checking.ways import GPU, LARGEST, chosen_variants
from benchmarks.learning.graph_sources import kept_sample
from benchmarks.learning.journals import journal
from storage.disk import write_json
from storage.parquet import read_rows, write_rows
from storage.records import Sample

Doubtful = tuple[Mapping[str, Any], Sample]
"""A row, and its sample with the variants on which it was checked."""


def doubtful_rows(
    rows: list[dict[str, Any]], lines: Mapping[str, Mapping[str, Any]], known: Container[str] = ()
) -> Iterator[Doubtful]:
    """The rows that are to be checked again, but for the graphs that are known; `lines` are a journal's by graph."""
    for row in rows:
        line = None if row["graph_hash"] in known else lines.get(row["graph_hash"])
        if row["checked"] != BY_OWN_PROCESS or row["level"] < LEVEL or line is None or line["task"] != row["task"]:
            continue
        sample = chosen_variants(kept_sample(line), 1, LARGEST[GPU])
        if sample is not None and any(i.dtype == "float32" for v in sample.variants for i in v.inputs):
            yield row, sample


def main() -> int:
    """Check, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demonstrations", type=Path, required=True)
    parser.add_argument("--written", type=Path, action="append", required=True, help="a journal with the samples")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--without", type=Path, action="append", default=[], help="a record of earlier checks")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--draws", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=1e9)
    arguments = parser.parse_args()
    began = time.monotonic()
    schema = pq.read_schema(arguments.demonstrations)
    rows = read_rows(arguments.demonstrations, schema)
    lines = {line["graph_hash"]: line for place in arguments.written for line in journal(place) if not line["cause"]}
    known = {graph for record in arguments.without for graph in json.loads(record.read_text("utf-8"))["of_each"]}
    doubtful = list(doubtful_rows(rows, lines, known))
    faults: dict[str, str] = {}

    def check(part: int) -> None:
        with OwnPasses(arguments.device, further=arguments.draws) as process:
            for row, sample in doubtful[part :: arguments.workers]:
                if time.monotonic() - began > arguments.seconds:
                    break
                found = process.check(sample, files_of(row["answer"]))
                faults[row["graph_hash"]] = found.fault or found.cause

    with ThreadPoolExecutor(arguments.workers) as threads:
        list(threads.map(check, range(arguments.workers)))
    gone = {graph for graph, fault in faults.items() if fault}
    write_rows(arguments.out, [row for row in rows if row["graph_hash"] not in gone], schema)
    about = {
        "device": arguments.device,
        "draws": arguments.draws,
        "doubtful": len(doubtful),
        "checked": len(faults),
        "right": len(faults) - len(gone),
        "faults": Counter(fault.partition(":")[0] for fault in faults.values() if fault),
        "seconds": round(time.monotonic() - began, 1),
    }
    left = [row["graph_hash"] for row, _ in doubtful if row["graph_hash"] not in faults]
    write_json(arguments.record, about | {"of_each": faults, "left": left})
    print(json.dumps(about))
    return 0


if __name__ == "__main__":
    sys.exit(main())

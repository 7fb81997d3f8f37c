"""Demonstrations that may be wrong in one draw of hundreds, checked again on many more draws.

    python -m benchmarks.learning.checking.recheck --demonstrations FILE --written DIR --out FILE --record FILE

Doubtful are rows that were checked on a GPU and of which `doubt` says why, but for those that the records of
`--without` have found right: records of this program, and of `exported_tasks.oracle_rewards`. Each whose sample is in a
journal is checked on `--draws` further draws, by `--workers` processes on one GPU. The file of `--out` has all rows but
those that were found wrong. Nothing is begun after `--seconds`; what is `left` stays doubtful, and `--sure-only` leaves
it out.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from agent.learning.answers import files_of
from benchmarks.learning.checking.doubt import row_doubt
from benchmarks.learning.checking.own_passes import OwnPasses
from benchmarks.learning.checking.verdicts import found_right
from benchmarks.learning.checking.ways import GPU, LARGEST, chosen_variants
from benchmarks.learning.graph_sources import kept_sample
from benchmarks.learning.journals import journal
from storage.disk import write_json
from storage.parquet import read_rows, write_rows
from storage.records import Sample


def doubtful_rows(rows: Iterable[dict[str, Any]], known: Container[str] = ()) -> list[dict[str, Any]]:
    """The rows that are doubtful, but for the graphs that are known to be right."""
    on_gpu = (row for row in rows if row["device"] != "cpu" and row["graph_hash"] not in known)
    return [row for row in on_gpu if row_doubt(row)]


def with_samples(
    rows: Iterable[dict[str, Any]], lines: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[dict[str, Any], Sample]]:
    """Those rows whose samples are in a journal, whose `lines` these are by graph, each with the variants on which it
    was checked."""
    for row in rows:
        line = lines.get(row["graph_hash"])
        if line is not None and line["task"] == row["task"]:
            sample = chosen_variants(kept_sample(line), 1, LARGEST[GPU])
            if sample is not None:
                yield row, sample


def main() -> int:
    """Check, and write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demonstrations", type=Path, required=True)
    parser.add_argument("--written", type=Path, action="append", required=True, help="a journal with the samples")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--without", type=Path, action="append", default=[], help="a record of earlier checks")
    parser.add_argument("--sure-only", action="store_true", help="leave out the rows that stay doubtful")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--draws", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=1e9)
    arguments = parser.parse_args()
    began = time.monotonic()
    schema = pq.read_schema(arguments.demonstrations)
    rows = read_rows(arguments.demonstrations, schema)
    lines = {line["graph_hash"]: line for place in arguments.written for line in journal(place) if not line["cause"]}
    records = [json.loads(record.read_text("utf-8")) for record in arguments.without]
    doubtful = doubtful_rows(rows, {graph for record in records for graph in found_right(record)})
    checkable = list(with_samples(doubtful, lines))
    faults: dict[str, str] = {}

    def check(part: int) -> None:
        with OwnPasses(arguments.device, further=arguments.draws) as process:
            for row, sample in checkable[part :: arguments.workers]:
                if time.monotonic() - began > arguments.seconds:
                    break
                found = process.check(sample, files_of(row["answer"]))
                faults[row["graph_hash"]] = found.fault or found.cause

    with ThreadPoolExecutor(arguments.workers) as threads:
        list(threads.map(check, range(arguments.workers)))
    wrong = {graph for graph, fault in faults.items() if fault}
    left = [row["graph_hash"] for row in doubtful if row["graph_hash"] not in faults]
    gone = wrong | set(left if arguments.sure_only else ())
    write_rows(arguments.out, [row for row in rows if row["graph_hash"] not in gone], schema)
    about = {
        "device": arguments.device,
        "draws": arguments.draws,
        "doubtful": len(doubtful),
        "checked": len(faults),
        "right": len(faults) - len(wrong),
        "faults": Counter(fault.partition(":")[0] for fault in faults.values() if fault),
        "seconds": round(time.monotonic() - began, 1),
    }
    write_json(arguments.record, about | {"of_each": faults, "left": left})
    print(json.dumps(about))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Trace the models of catalogues into a data directory's traces, on a machine that need not have Prefect.

    python3 benchmarks/extraction/trace_corpus.py --catalog timm --catalog transformers --workers 16 --data DIR

Keeps a shard whenever `--shard` models are done, so it goes on where it stopped; `passnet build --data DIR` with the
same libraries finds the traces. Catalogues are worked off in the order given, each in a random order of its own, so
that what a budget leaves of one is a fair sample; with `--in-order` as they stand, for a list that has what matters
first, such as benchmarks/extraction/whole_corpus.txt. `--retry-failed` traces the models again that failed, when the
tracing code can do more than before; put it after the other options. `--done` leaves out what is traced elsewhere: a
`models.csv` of `benchmarks.extraction.coverage_table`. Prints a line a model and, at the end, a table by category of
outcome.
"""

import argparse
import csv
import random
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from extraction.failures import CATEGORIES
from extraction.pool.client import Pool
from extraction.sources.catalog import Entry, read_catalog
from extraction.sources.spec import specified
from extraction.tracing.trace_files import TraceOutcome
from extraction.tracing.trace_store import TraceStore
from extraction.tracing.trace_workers import trace_all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalog", action="append", required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shard", type=int, default=50, help="models that are kept at a time")
    parser.add_argument("--limit", type=int, default=None, help="models at most")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a model")
    parser.add_argument("--memory", type=int, default=8_192, help="MiB a model")
    parser.add_argument("--retry-failed", nargs="*", metavar="CATEGORY", choices=CATEGORIES, default=None,
                        help="trace again what failed before with one of these categories (default: any)")  # fmt: skip
    parser.add_argument("--budget", type=float, default=float("inf"),
                        help="seconds, reading of configs included; the rest is left for another time")  # fmt: skip
    parser.add_argument("--done", type=Path, action="append", default=[], help="models.csv of what need not be traced")
    parser.add_argument("--in-order", action="store_true", help="take each catalogue's models as they stand")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.budget
    entries = to_trace(arguments.catalog, arguments.done, arguments.in_order)[: arguments.limit]
    store = TraceStore(arguments.data / "traces")
    retry = CATEGORIES if arguments.retry_failed == [] else arguments.retry_failed or ()
    missing = store.missing(specified(entries), retry)
    print(f"{len(entries)} models, {len(missing)} to trace", flush=True)
    started, shard, ends, seconds = time.monotonic(), [], Counter(), 0.0
    limits = {"workers": arguments.workers, "timeout_s": arguments.timeout, "memory_mb": arguments.memory}
    with Pool(**limits) as pool, closing(trace_all(missing, pool)) as outcomes:
        for number, outcome in enumerate(outcomes, 1):
            shard.append(outcome)
            ends[outcome.row["error_category"] or "traced"] += 1
            seconds += outcome.row["seconds"]
            print(line(number, outcome), flush=True)
            if len(shard) == arguments.shard:
                store.add(shard)
                shard = []
            if time.monotonic() > end:
                break
    if shard:
        store.add(shard)
    took = time.monotonic() - started
    done = sum(ends.values())
    print(f"{done} of {len(missing)} models in {took:.0f} s, {60 * done / max(took, 1):.0f} a minute with "
          f"{arguments.workers} workers, {seconds / max(done, 1):.1f} s a model")  # fmt: skip
    for end, count in ends.most_common():
        print(f"{count:6} {end}")


def to_trace(catalogs: list[str], done: list[Path], in_order: bool) -> list[Entry]:
    """The entries of catalogues, one catalogue after the other, without those that a table has as traced; each
    catalogue's in its own order, or shuffled."""
    traced = {row["model"] for path in done for row in csv.DictReader(path.open()) if row["outcome"] == "traced"}
    found: dict[str, Entry] = {}
    for name in catalogs:
        entries = read_catalog(name, None)
        if not in_order:
            random.Random(0).shuffle(entries)
        found.update({entry.text: entry for entry in entries if entry.text not in traced | found.keys()})
    return list(found.values())


def line(number: int, outcome: TraceOutcome) -> str:
    """What came of a model."""
    row = outcome.row
    what = f"{row['ops']} ops" if outcome.traced else f"{row['error_category']}: {row['message']}"
    sizes = ",".join(row["symbols"]) or row["static_reason"]
    return f"[{number}] {row['model']} {row['seconds']:.1f} s {what[:200]} [{sizes[:120]}]"


if __name__ == "__main__":
    main()

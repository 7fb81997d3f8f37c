"""How hashing, deduplication and grouping scale: a million subgraph records made from those of a dataset version.

    python -m benchmarks.dedup.million --version DATA/versions/v1 --rows 250000 500000 1000000 --out DIR

Each record is a real variant with other input names, inputs and independent ops in another order. A share of them also
has another constant or shape, in a way that makes it different from all others, so the true number of unique variants
is known before anything is hashed; a run that finds another number fails. Records are made and hashed by two processes,
merged and grouped by the engine, and written as a version's tables would be.
"""

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

from dedup.database import MEMORY_MB, Engine, parquet
from dedup.hashes import identify
from dedup.memory_order import order, reads
from dedup.rows import ROWS, batches, write
from dedup.samples import choose_samples, sample_batches
from dedup.unique import unique_files
from storage.graph.record import Graph, Op, Ref, map_refs
from storage.records import Source, Variant
from storage.schema import CATEGORIES, SAMPLES, SPLITS
from storage.versions.store import Version

CHUNK = 20_000
CHANGED = 0.25
"""Share of records with a constant or shape of their own."""
CHANGES = 4
"""Different changes that a variant may get."""


@cache
def base(version: str) -> list[Variant]:
    """The variants of a version, each once."""
    rows = (row for c in CATEGORIES for batch in Version.open(version).batches(c) for row in batch.to_pylist())
    found = {}
    for row in rows:
        variant = identify(Variant.from_row(row))
        found.setdefault((variant.category, variant.variant_hash), variant)
    return list(found.values())


def plan(count: int, number: int) -> tuple[int, int]:
    """Which variant record `number` is made of, and which change it gets; 0 is none."""
    draw = random.Random(f"plan {number}")
    which = draw.randrange(count)
    return which, CHANGES * which + draw.randint(1, CHANGES) if draw.random() < CHANGED else 0


def record(variant: Variant, change: int, number: int) -> Variant:
    """A variant as another model might have it, and changed where it should be another.

    `change` is 0 for none, else a number that no other variant's change has.
    """
    draw = random.Random(number)
    graph, inputs = variant.graph, list(variant.inputs)
    if change:
        changed = _with_constant(graph, 7_000_000 + change) if change % 2 else None
        graph = changed or graph
        if changed is None:
            inputs[0] = replace(inputs[0], shape=(9_000_000 + change, *inputs[0].shape))
    graph, moved = _shuffled(graph, draw)
    inputs = tuple(replace(inputs[old], name=f"l_{draw.randrange(10**6)}_") for old in moved)
    start = draw.randrange(1000)
    source = Source(f"model{draw.randrange(2000)}", start, start + len(graph.ops))
    return replace(variant, graph=graph, inputs=inputs, sources=(source,), occurrences=1, code="", variant_hash="")


def _with_constant(graph: Graph, value: int) -> Graph | None:
    """The graph with its first whole number replaced; None if it has none among its ops' arguments."""
    for number, op in enumerate(graph.ops):
        for position, argument in enumerate(op.args):
            if type(argument) is int:
                args = (*op.args[:position], value, *op.args[position + 1 :])
                ops = (*graph.ops[:number], replace(op, args=args), *graph.ops[number + 1 :])
                return Graph(graph.inputs, ops, graph.output)
    return None


def _shuffled(graph: Graph, draw: random.Random) -> tuple[Graph, list[int]]:
    """The same graph with its inputs and independent ops in another order; ops stay where memory is changed."""
    inputs = list(range(graph.inputs))
    draw.shuffle(inputs)
    read = reads(graph)
    ops = list(range(len(graph.ops)))
    if order(graph, read) is None and len(ops) > 1:
        needs = [{value - graph.inputs for value in each if value >= graph.inputs} for each in read]
        ready = [op for op in ops if not needs[op]]
        followers: list[list[int]] = [[] for _ in ops]
        for op, needed in enumerate(needs):
            for other in needed:
                followers[other].append(op)
        waiting = [len(needed) for needed in needs]
        ops = []
        while ready:
            op = ready.pop(draw.randrange(len(ready)))
            ops.append(op)
            for follower in followers[op]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    ready.append(follower)
    new = {old: Ref(n) for n, old in enumerate([*inputs, *(graph.inputs + op for op in ops)])}

    def renumber(ref: Ref) -> Ref:
        return new[ref.index]

    chosen = (graph.ops[op] for op in ops)
    moved = tuple(Op(o.kind, o.target, map_refs(o.args, renumber), map_refs(o.kwargs, renumber)) for o in chosen)
    return Graph(graph.inputs, moved, map_refs(graph.output, renumber)), inputs


def hash_chunk(version: str, first: int, count: int, out: str) -> dict[str, float]:
    """Make, hash and write some records; seconds of processor time by step."""
    variants = base(version)
    seconds = dict.fromkeys(("make", "hash", "write"), 0.0)

    def identified() -> Iterator[Variant]:
        for number in range(first, first + count):
            which, change = plan(len(variants), number)
            begin = time.process_time()
            made = record(variants[which], change, number)
            middle = time.process_time()
            hashed = identify(made)
            seconds["make"] += middle - begin
            seconds["hash"] += time.process_time() - middle
            yield hashed

    begin = time.process_time()
    write(Path(out), batches(identified()), ROWS, {})
    seconds["write"] = time.process_time() - begin - seconds["make"] - seconds["hash"]
    return {**seconds, "peak_mb": _peak_mb()}


def run(version: str, rows: int, processes: int, scratch: Path) -> dict:
    """One size: what was found, and what it took."""
    clock = {"begin": time.monotonic()}
    load = os.getloadavg()[0]
    files = [scratch / f"{first}.parquet" for first in range(0, rows, CHUNK)]
    starts = range(0, rows, CHUNK)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        jobs = [
            pool.submit(hash_chunk, version, first, min(CHUNK, rows - first), str(file))
            for first, file in zip(starts, files, strict=True)
        ]
        spent = [job.result() for job in jobs]
    clock["hashed"] = time.monotonic()
    with Engine(scratch / "engine", threads=processes) as engine:
        unique = unique_files(engine, files, scratch / "unique")
        clock["deduplicated"] = time.monotonic()
        choice = choose_samples(engine, parquet(list(unique.values())))
        for split in SPLITS:
            write(scratch / f"samples-{split}.parquet", sample_batches(engine, split), SAMPLES, {})
        clock["grouped"] = time.monotonic()
        (found,) = engine.run(f"SELECT count(*), sum(occurrences)::BIGINT FROM {parquet(list(unique.values()))}")
    variants = base(version)
    expected = {plan(len(variants), number) for number in range(rows)}
    families = {(variants[which].category, variants[which].family_hash) for which, _ in expected}
    result = {
        "rows": rows,
        "processes": processes,
        "unique": found[0],
        "unique_expected": len(expected),
        "occurrences": found[1],
        "samples": sum(choice.samples.values()),
        "samples_expected": len(families),
        "ops": sum(len(v.graph.ops) for v in variants) / len(variants),
        "seconds": clock["grouped"] - clock["begin"],
        "seconds_hashing": clock["hashed"] - clock["begin"],
        "seconds_dedup": clock["deduplicated"] - clock["hashed"],
        "seconds_grouping": clock["grouped"] - clock["deduplicated"],
        "processor_s_making": sum(each["make"] for each in spent),
        "processor_s_hashing": sum(each["hash"] for each in spent),
        "processor_s_writing": sum(each["write"] for each in spent),
        "peak_mb_worker": max(each["peak_mb"] for each in spent),
        "peak_mb_main": _peak_mb(),
        "load_before": load,
        "load_after": os.getloadavg()[0],
        "scratch_mb": sum(file.stat().st_size for file in files) / 1e6,
    }
    result["peak_mb"] = result["peak_mb_main"] + processes * result["peak_mb_worker"]
    return result


def _peak_mb() -> float:
    """Not `ru_maxrss`: a spawned process begins with its parent's."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


def table(results: list[dict]) -> str:
    """Results as Markdown."""
    columns = {
        "records": lambda r: f"{r['rows']:,}",
        "unique (expected)": lambda r: f"{r['unique']:,} ({r['unique_expected']:,})",
        "samples (expected)": lambda r: f"{r['samples']:,} ({r['samples_expected']:,})",
        "wall s": lambda r: f"{r['seconds']:.0f}",
        "making and hashing": lambda r: f"{r['seconds_hashing']:.0f}",
        "dedup": lambda r: f"{r['seconds_dedup']:.0f}",
        "grouping": lambda r: f"{r['seconds_grouping']:.0f}",
        "hash ms a record": lambda r: f"{1000 * r['processor_s_hashing'] / r['rows']:.3f}",
        "peak MB, all processes": lambda r: f"{r['peak_mb']:.0f}",
        "load before, after": lambda r: f"{r['load_before']:.1f}, {r['load_after']:.1f}",
    }
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(column(result) for column in columns.values()) for result in results]
    return "".join(f"| {line} |\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", required=True, help="directory of a dataset version")
    parser.add_argument("--rows", type=int, nargs="+", default=[250_000, 500_000, 1_000_000])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="directory for million.json and README.md")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = []
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory(prefix="million-") as scratch:
            result = run(arguments.version, rows, arguments.processes, Path(scratch))
        print(json.dumps(result), flush=True)
        results.append(result)
        report = {"engine_memory_mb": MEMORY_MB, "python": sys.version.split()[0], "runs": results}
        (arguments.out / "million.json").write_text(json.dumps(report, indent=1) + "\n")
        (arguments.out / "README.md").write_text(_PAGE + table(results))
    right = all(r["unique"] == r["unique_expected"] and r["samples"] == r["samples_expected"] for r in results)
    right &= all(r["occurrences"] == r["rows"] for r in results)
    return 0 if right else 1


_PAGE = """# Deduplication at scale

Written by `python -m benchmarks.dedup.million --version DATA/versions/v1 --rows … --out DIR`: see its docstring for how
the records are made. Wall time includes making them; the peak is the sum of the processes' peaks.

"""


if __name__ == "__main__":
    sys.exit(main())

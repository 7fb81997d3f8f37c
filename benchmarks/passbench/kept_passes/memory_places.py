"""Whether eager beside itself in shared rounds depends on where the shared memory lies, on the process or on the role.

    python3 -m benchmarks.passbench.kept_passes.memory_places --out FILE [--budget 75]            # on a GPU
    python3 -m benchmarks.passbench.kept_passes.memory_places --out FILE --device cpu --most 4    # tries it

Samples are those of a table in which eager as a candidate was farthest from eager by the device's clock, the one with
the largest inputs first, since eager's memory is kept when it has grown. Each is timed as a table times it: eager,
eager as a candidate, and the recorded pass, beside processes that keep other passes. Where eager is off by more than
3 %, it is timed again at once, with one thing changed each time:

    memories    both workers of eager have each other's shared memory
    roles       they have each other's role: the process and the memory of one are what candidates are divided by
    fresh       both processes are new, their memory is the same
    equal       all sides have new memory of one size (`Settings.equal_memory`)

If the bias turns round under `memories` and under `roles` alone, it is the memory's; under `roles` and not `memories`,
the process's; if it stays under all three, the procedure's. FILE gets a JSON line a trial as it comes: speedups,
microseconds, sizes and addresses of both memories, and how fast this process reads each of them.
"""

import argparse
import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.passbench.kept_passes.both_ways import CORPORA, RECORD, SETTINGS
from benchmarks.passbench.kept_passes.loaded_calls import KeptPass, written_to
from passbench.shared_bench import SharedBench
from storage.parquet import read_rows
from storage.records import dtype_of
from storage.schema import RESULTS

WAYS = ("as it comes", "memories", "roles", "fresh", "equal")
_OFF = 0.03
_READS = 5
_PIECE = 64 << 20  # bytes
_GRACE = 10.0


def farthest_first(rows: Sequence[dict]) -> list[str]:
    """Samples by how far eager as a candidate was from eager."""
    known = {row["sample"]: row["speedup_device"] for row in rows if row["author"] == "eager" and row["speedup_device"]}
    return sorted(known, key=lambda sample: -abs(math.log(known[sample])))


def input_bytes(kept: KeptPass) -> int:
    """Of one call."""
    return sum(math.prod(one.shape) * dtype_of(one.dtype).itemsize for one in kept.variant.inputs if one.shape)


def arrange(bench: SharedBench, way: str) -> None:
    """Bring the two workers of eager, which have been timed, into an arrangement. What it exchanges a second call
    exchanges back."""
    eager, candidate = bench._eager, bench._baseline_worker("eager")
    if way == "memories":
        for worker in (eager, candidate):
            (worker._shut if bench.device.type == "cuda" else worker.stop)()
        eager.shared, candidate.shared = candidate.shared, eager.shared
    if way == "roles":
        bench._eager, bench._warm["eager"] = candidate, eager
    if way == "fresh":
        eager.stop()
        candidate.stop()
    if way == "equal":
        bench.settings = replace(bench.settings, equal_memory=not bench.settings.equal_memory)


def read_speed(memory: torch.Tensor) -> float:
    """GB a second at which this process copies memory out, the median of some times; 0 without a GPU."""
    if not memory.is_cuda:
        return 0.0
    target = torch.empty(_PIECE, dtype=torch.uint8, device=memory.device)
    found = []
    for _ in range(_READS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for piece in memory.split(_PIECE):
            target[: piece.numel()].copy_(piece)
        end.record()
        end.synchronize()
        found.append(memory.numel() / begin.elapsed_time(end) / 1e6)
    return sorted(found)[_READS // 2]


def trial(bench: SharedBench, one: KeptPass, way: str) -> dict:
    """One trial of eager and the pass, and what is known of the memories afterwards."""
    begin = time.monotonic()
    named = {"eager": ("eager", None), "distill": ("pass", one.directory)}
    (found,) = bench.run_together(one.sample, named)
    row = {"sample": one.name, "way": way, "status": found["eager"].status}
    for name, result in found.items():
        for t in result.timings:
            row[f"{name} {t.clock}"] = [round(t.eager_us / t.candidate_us, 4), round(t.eager_us, 3)]
    for role, worker in (("eager", bench._eager), ("candidate", bench._baseline_worker("eager"))):
        shared = worker.shared
        row[f"memory of {role}"] = [shared.size >> 20, hex(shared.bytes.data_ptr()), round(read_speed(shared.bytes))]
    return row | {"seconds": round(time.monotonic() - begin, 2)}


def trials(bench: SharedBench, kept: Sequence[KeptPass], budget: float) -> Iterator[dict]:
    """The rows of all trials; no further sample is begun after `budget` seconds."""
    end = time.monotonic() + budget
    for one in kept:
        if time.monotonic() > end:
            return
        yield (plain := trial(bench, one, WAYS[0]))
        speedup = plain.get("eager device", plain.get("eager e2e", [1.0]))[0]
        if abs(math.log(speedup)) < _OFF and bench.device.type == "cuda":
            continue
        for way in WAYS[1:] if time.monotonic() < end else ():
            arrange(bench, way)
            try:
                yield trial(bench, one, way)
            finally:
                if way != "fresh":
                    arrange(bench, way)


def table_of(rows: Sequence[dict]) -> str:
    """Eager as a candidate in each way, in Markdown."""
    lines = ["| sample | clock | " + " | ".join(WAYS) + " |", "|---" * (2 + len(WAYS)) + "|"]
    for sample in dict.fromkeys(row["sample"] for row in rows):
        by_way = {row["way"]: row for row in rows if row["sample"] == sample}
        for clock in ("e2e", "device"):
            cells = [by_way.get(way, {}).get(f"eager {clock}") for way in WAYS]
            if any(cells):
                said = " | ".join(f"{cell[0]:.3f}" if cell else "" for cell in cells)
                lines.append(f"| {sample} | {clock} | {said} |")
    return "\n".join(lines)


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=Path, default=RECORD, help="rows of a table, with the text of passes")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--most", type=int, default=24, help="samples that are timed")
    parser.add_argument("--kept", type=int, default=60, help="passes that are kept, those of the samples among them")
    parser.add_argument("--processes", type=int, default=max(1, len(os.sched_getaffinity(0)) - 1))
    parser.add_argument("--budget", type=float, default=75.0, help="seconds after which no further sample is timed")
    given = parser.parse_args()
    begin, every = time.monotonic(), read_rows(given.rows, RESULTS)
    rank = {sample: number for number, sample in enumerate(farthest_first(every))}
    rows = [row for row in every if row["author"] == "distill" and row["pass_files"] and row["sample"] in rank]
    rows.sort(key=lambda row: rank[row["sample"]])
    found = []
    with tempfile.TemporaryDirectory(prefix="memory-places-") as scratch, SharedBench(given.device, SETTINGS) as bench:
        kept = written_to(Path(scratch), rows, CORPORA, max(given.kept, given.most))
        kept.sort(key=lambda one: rank[one.name])
        jobs = [(one.sample, one.directory) for one in kept[: given.kept]]
        missed = bench.compile_passes(jobs, given.processes, time.monotonic() + given.budget / 3, _GRACE)
        print(
            f"{len(jobs) - len(missed)} of {len(jobs)} passes are kept after {time.monotonic() - begin:.0f} s",
            flush=True,
        )
        with given.out.open("w", encoding="utf-8") as stream:
            largest = max(kept[: given.most], key=input_bytes)
            chosen = sorted(kept[: given.most], key=lambda one: one is not largest)
            for row in trials(bench, chosen, given.budget - (time.monotonic() - begin)):
                found.append(row)
                print(json.dumps(row), file=stream, flush=True)
                print(json.dumps(row), flush=True)
    print(table_of(found))


if __name__ == "__main__":
    main()

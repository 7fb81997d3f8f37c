"""Eager against itself in turns, with threads of torch's beside the benchmark and without, on one host.

    python -m benchmarks.passbench.host_noise.thread_turns VERSION_DIR --out FILE [--names FILE] [--budget 45]

Until 24 November 2026 PassBench drew inputs on as many threads as the machine has cores, which spun between draws
(`passbench.workers.one_thread`). Each variant is timed in both ways, in turns. Printed are variants a minute, how far
speedups are from 1, and what each phase takes; FILE gets a line of JSON a trial.
"""

import argparse
import json
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch

from passbench.bench import Bench
from passbench.names import CLOCKS
from passbench.result import VariantResult
from storage.versions.samples import load_samples
from storage.versions.version import Version

WAYS = ("all threads", "one thread")
_PHASES = 12


@contextmanager
def _as_before() -> Iterator[None]:
    """Keep torch's threads, whatever PassBench says."""
    set_threads = torch.set_num_threads
    torch.set_num_threads = lambda number: None
    try:
        yield
    finally:
        torch.set_num_threads = set_threads


def _line(way: str, result: VariantResult) -> dict:
    speedups = {clock: result.speedup(clock) for clock in CLOCKS}
    about = {"way": way, "variant": result.variant_hash, "category": result.category, "status": result.status}
    return about | {"seconds": result.seconds, "speedups": speedups, "phases": result.phases, "busy": result.busy}


def _summary(way: str, lines: list[dict]) -> str:
    if not lines:
        return f"{way}: no variant was timed in both ways"
    seconds = statistics.fmean(line["seconds"] for line in lines)
    text = f"{way}: {len(lines)} variants, {60 / seconds:.0f} a minute of their own time"
    for clock, near in (("e2e", 0.03), ("device", 0.02)):
        off = [abs(line["speedups"][clock] - 1) for line in lines if line["speedups"][clock]]
        if off:
            text += f"; {clock} {sum(x <= near for x in off) / len(off):.0%} within {near:.0%}, mean distance "
            text += f"{statistics.fmean(off):.3f}"
    phases = Counter()
    for line in lines:
        phases.update(line["phases"])
    longest = ", ".join(f"{name} {1000 * took / len(lines):.0f}" for name, took in phases.most_common(_PHASES))
    return f"{text}\n    ms a variant: {longest}"


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", type=Path)
    parser.add_argument("--budget", type=float, default=45.0, help="seconds")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    end = time.monotonic() + given.budget
    names = given.names.read_text().split() if given.names else None
    samples = load_samples(Version.open(given.version), names=names)
    lines: list[dict] = []
    with Bench(given.device) as bench, given.out.open("w") as file:
        for result in bench.run(samples[0], "eager"):  # starts all processes
            print(f"{torch.get_num_threads()} threads; {result.device}; the first trial took {result.seconds:.1f} s")
            break
        for number, sample in enumerate(samples):
            for way in WAYS[:: -1 if number % 2 else 1]:
                if time.monotonic() > end:
                    break
                with _as_before() if way == WAYS[0] else nullcontext():
                    result = next(iter(bench.run(sample, "eager")))
                lines.append(_line(way, result))
                file.write(json.dumps(lines[-1]) + "\n")
    both = Counter(line["variant"] for line in lines if line["status"] == "ok")
    for way in WAYS:
        print(_summary(way, [line for line in lines if line["way"] == way and both[line["variant"]] == len(WAYS)]))


if __name__ == "__main__":
    main()

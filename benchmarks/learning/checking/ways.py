"""Ways to find out whether a pass of our own is right: in one process on a CPU or a GPU, by PassBench, or later."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.learning.checking.own_passes import OwnPasses
from benchmarks.learning.checking.verdicts import BY_PASSBENCH, Checked, checked
from benchmarks.learning.composed import few_rows
from benchmarks.learning.graph_sources import elements, shown, small
from passbench.bench import Bench
from passbench.contract import write_pass_dir
from passbench.settings import Settings
from storage.records import Sample, Variant

INTERPRETER, GPU, PASSBENCH, TIMED, LATER = "interpreter", "gpu", "passbench", "timed", "later"
WAYS = (INTERPRETER, GPU, PASSBENCH, TIMED, LATER)
"""`own_passes` on a CPU, and on a GPU with times; PassBench, many side by side, and one at a time with times; not at
all."""

_QUICK = Settings(
    draws=5, draw_calls=1, calls=2, pairs=1, batch=2, warmup=0, repeats=0, double=False, call_timeout=20, threads=1,
    timing_budget=0.05, shared_bytes=1 << 30,
)  # fmt: skip
_TIMED = Settings(double=False, timing_budget=2.0, pairs=6, repeats=1)
LARGEST = {INTERPRETER: 60_000, GPU: 30_000_000, PASSBENCH: 30_000_000, TIMED: 200_000_000}
"""Elements of a variant that is checked so, at most."""

Check = Callable[[Sample, Mapping[str, str]], Checked]


@contextmanager
def checking(way: str, number: int, variants: int, largest: int | None, turns: Path | None = None) -> Iterator[Check]:
    """The check of this `way`, for process `number` of several, on at most so many variants of a graph, each of at most
    `largest` elements. `turns`: the directory of those that measure on the same GPUs."""
    largest = largest or LARGEST.get(way, 0)
    with ExitStack() as stack:
        if way == LATER:
            yield lambda sample, files: Checked()
        elif way == INTERPRETER:
            process = stack.enter_context(OwnPasses())
            yield lambda sample, files: _interpreted(process, sample, files, variants, largest)
        elif way == GPU:
            device = f"cuda:{number % max(1, torch.cuda.device_count())}"
            process = stack.enter_context(OwnPasses(device, turns))
            yield lambda sample, files: _on_gpu(process, sample, files, variants, largest)
        else:
            bench = stack.enter_context(_bench(way, number))
            yield lambda sample, files: _benched(bench, way, sample, files, variants, largest)


def _interpreted(process: OwnPasses, sample: Sample, files: Mapping[str, str], variants: int, largest: int) -> Checked:
    chosen = chosen_variants(sample, variants, largest)
    if chosen is None and len(one_of_each_layout(sample, 1).variants) == 1:
        chosen = small(sample, largest)
    return process.check(chosen, files) if chosen else Checked(cause="no variant is small enough to be interpreted")


def _on_gpu(process: OwnPasses, sample: Sample, files: Mapping[str, str], variants: int, largest: int) -> Checked:
    chosen = chosen_variants(sample, variants, largest)
    return process.check(chosen, files) if chosen else Checked(cause="no variant is small enough")


@contextmanager
def _bench(way: str, number: int) -> Iterator[Bench]:
    """A benchmark on one of the GPUs, or on the CPU where there is none.

    Where nothing is timed, benchmarks run side by side: each has two cores, which it shares with its neighbours, and
    with so few PassBench pins nothing.
    """
    count = torch.cuda.device_count()
    if way == PASSBENCH and count:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[number % len(cores)], cores[(number + 1) % len(cores)]})
    device = f"cuda:{number % count}" if count else "cpu"
    with Bench(device, _QUICK if way == PASSBENCH else _TIMED) as bench:
        yield bench


def _benched(bench: Bench, way: str, sample: Sample, files: Mapping[str, str], variants: int, largest: int) -> Checked:
    if bench.device.type == "cpu":
        largest = min(largest, LARGEST[INTERPRETER])
    chosen = chosen_variants(sample, variants, largest)
    if chosen is None:
        return Checked(cause="no variant is small enough")
    with tempfile.TemporaryDirectory(prefix="passnet-demonstration-") as place:
        directory = Path(place) / "pass"
        write_pass_dir(dict(files), directory)
        results = list(bench.run(chosen, "pass", directory))
    return checked(results, BY_PASSBENCH, timed=way == TIMED)


def chosen_variants(sample: Sample, variants: int, largest: int) -> Sample | None:
    """The variants to check; None where one is too large."""
    chosen = one_of_each_layout(few_rows(sample) if sample.sample.startswith("composed") else sample, variants)
    return chosen if max(map(elements, chosen.variants)) <= largest else None


def one_of_each_layout(sample: Sample, at_most: int) -> Sample:
    """The variants that the task shows, of those that differ in dtypes alone `at_most`: which ones is different from
    graph to graph. All layouts are there, since a pass that was written from one may be wrong for another."""
    groups: dict[tuple, list[Variant]] = {}
    for one in shown(sample).variants:
        groups.setdefault(tuple((i.shape, i.stride) for i in one.inputs), []).append(one)
    turn = int(sample.variants[0].graph_hash[:6] or "0", 16)
    kept = [each[(turn + n) % len(each)] for each in groups.values() for n in range(min(at_most, len(each)))]
    return replace(sample, variants=tuple(kept))

"""Ways to find out whether a pass of our own is right: the interpreter, PassBench, PassBench with times, or later."""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from agent.learning.reward import LEVEL
from benchmarks.learning.composed import few_rows
from benchmarks.learning.graph_sources import elements, shown, small
from benchmarks.learning.interpreted import Interpreter
from passbench.bench import Bench
from passbench.contract import write_pass_dir
from passbench.result import VariantResult
from passbench.score import geometric_mean
from passbench.settings import Settings
from storage.records import Sample, Variant

INTERPRETER, PASSBENCH, TIMED, LATER = "interpreter", "passbench", "timed", "later"
WAYS = (INTERPRETER, PASSBENCH, TIMED, LATER)
"""Without a GPU; with one, many side by side; one at a time with times; not at all."""

BY_INTERPRETER = "cpu interpreter"
BY_PASSBENCH = "PassBench"
"""What a row says of how it was checked; the device stands in another column."""

_QUICK = Settings(
    draws=5, draw_calls=1, calls=2, pairs=1, batch=2, warmup=0, repeats=0, double=False, call_timeout=20, threads=1,
    timing_budget=0.05, shared_bytes=1 << 30,
)  # fmt: skip
_TIMED = Settings(double=False, timing_budget=2.0, pairs=6, repeats=1)
_LARGEST = {INTERPRETER: 60_000, PASSBENCH: 30_000_000, TIMED: 200_000_000}


@dataclass(frozen=True)
class Checked:
    """What came of a check: `fault` says what is wrong with the pass, empty if it is right, and `cause` why it was not
    checked. `level` and speedups are the worst and the geometric mean over `variants`. `phases`: seconds of PassBench's
    stages in the last variant."""

    fault: str = ""
    cause: str = ""
    checked: str = ""
    device: str = ""
    variants: int = 0
    level: int | None = None
    speedup_e2e: float | None = None
    speedup_device: float | None = None
    phases: Mapping[str, float] | None = None


Check = Callable[[Sample, Mapping[str, str]], Checked]


@contextmanager
def checking(way: str, number: int, variants: int, largest: int | None) -> Iterator[Check]:
    """The check of this `way`, for process `number` of several, on at most so many variants of a graph, each of at most
    `largest` elements."""
    largest = largest or _LARGEST.get(way, 0)
    with ExitStack() as stack:
        if way == LATER:
            yield lambda sample, files: Checked()
        elif way == INTERPRETER:
            interpreter = stack.enter_context(Interpreter())
            yield lambda sample, files: _interpreted(interpreter, sample, files, largest)
        else:
            bench = stack.enter_context(_bench(way, number))
            yield lambda sample, files: _benched(bench, way, sample, files, variants, largest)


def _interpreted(interpreter: Interpreter, sample: Sample, files: Mapping[str, str], largest: int) -> Checked:
    chosen, layouts = small(sample, largest), one_of_each_layout(sample, 1)
    if chosen is not None and len(layouts.variants) > 1:
        chosen = layouts if max(map(elements, layouts.variants)) <= largest else None
    if chosen is None:
        return Checked(cause="no variant is small enough to be interpreted")
    fault = interpreter.fault(chosen, files)
    return Checked(fault, "", BY_INTERPRETER, "cpu", len(chosen.variants), LEVEL)


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
        largest = min(largest, _LARGEST[INTERPRETER])
    chosen = one_of_each_layout(few_rows(sample) if sample.sample.startswith("composed") else sample, variants)
    if max(map(elements, chosen.variants)) > largest:
        return Checked(cause="no variant is small enough")
    with tempfile.TemporaryDirectory(prefix="passnet-demonstration-") as place:
        directory = Path(place) / "pass"
        write_pass_dir(dict(files), directory)
        results = list(bench.run(chosen, "pass", directory))
    return checked(results, timed=way == TIMED)


def one_of_each_layout(sample: Sample, at_most: int) -> Sample:
    """The variants that the task shows, of those that differ in dtypes alone `at_most`: which ones is different from
    graph to graph. All layouts are there, since a pass that was written from one may be wrong for another."""
    groups: dict[tuple, list[Variant]] = {}
    for one in shown(sample).variants:
        groups.setdefault(tuple((i.shape, i.stride) for i in one.inputs), []).append(one)
    turn = int(sample.variants[0].graph_hash[:6] or "0", 16)
    kept = [each[(turn + n) % len(each)] for each in groups.values() for n in range(min(at_most, len(each)))]
    return replace(sample, variants=tuple(kept))


def checked(results: list[VariantResult], timed: bool) -> Checked:
    """What PassBench's results of a pass say; times count if they were taken alone."""
    for result in results:
        if result.status != "ok" or result.t_min is None or result.t_min > LEVEL:
            status = result.status if result.status != "ok" else f"right at t = {result.t_min} only"
            return Checked(f"{status}: {result.reason}", device=result.device)
    of_clock = {clock: [r.speedup(clock) for r in results] for clock in ("e2e", "device")}
    means = {
        clock: geometric_mean(each) if timed and results[0].times_meaningful and all(each) else None
        for clock, each in of_clock.items()
    }
    level = max(result.t_min for result in results)
    return Checked(
        "", "", BY_PASSBENCH, results[0].device, len(results), level, means["e2e"], means["device"], results[-1].phases
    )

"""Passes of `distill` beside strict and default TorchInductor, by the device's clock, many samples at a time.

    python3 -m benchmarks.agent.beside_inductor VERSION_DIR --names FILE --out DIR            # writes passes first
    python3 -m benchmarks.agent.beside_inductor VERSION_DIR --names FILE --passes DIR --out DIR  # DIR/SAMPLE/pass

PassBench judges about 40 variants a minute, one compiler at a time. Here processes work side by side: each takes a
sample, compiles all sides, compares each with eager as authors do (`agent.ahead.quick_measure`), and captures calls of
each in one CUDA graph (`passbench.child.captured_calls`, as PassBench does). Replays of the graphs take turns, one
sample has the GPU at a time, and the lower quartile counts: what other processes compile only adds to a time.
What the host does is in no time. A side that is left to eager is eager.

Writes DIR/rows/SAMPLE.json as they come, then DIR/rows.csv and DIR/summary.txt. Given the same DIR again, it goes on.
Without a GPU the times are those of whole calls.
"""

import argparse
import csv
import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import quantiles
from typing import Any, ClassVar

import torch

from agent.ahead.author_pool import Answers, AuthorPool
from agent.ahead.quick_measure import QuickMeasure, Row
from agent.author import Attempt, Author, Submission
from agent.distill.tuned import Tuned
from agent.run.choose import Choice, chosen, floating_dtype
from passbench.child.captured_calls import CapturedCalls, EmptyReplay
from passbench.compilers import build
from passbench.contract import loaded_rules, read_pass_dir
from passbench.launch.capture import captured
from passbench.matching.rewrite import apply_pass
from storage.disk import write_json
from storage.errors import PassNetError
from storage.graph.as_fx import to_module
from storage.records import Sample, Variant
from storage.schema import CATEGORIES
from storage.versions.version import Version

STRICT, DEFAULT = "inductor-strict-direct", "inductor-direct"
LEVEL = -5
COLUMNS = ("sample", "category", "variant", "dtype", "left_to_eager", "calls",
           *(f"{side}_{what}" for side in ("eager", "pass", "strict", "default") for what in ("us", "t_min")),
           "reason")  # fmt: skip

_GRAPH_US = 600.0  # that the calls of a graph should take, as in PassBench
_MOST_CALLS, _MOST_BYTES = 64, 1 << 30  # of a graph: calls, and bytes of their inputs
_REPLAYS = 16


@dataclass
class Beside(Author):
    """Hands in nothing: keeps a row for each sample in `rows`. `passes`/SAMPLE/pass is a sample's pass; where there is
    none, the sample is left to eager."""

    passes: Path
    rows: Path
    name: str = "distill"
    measures: ClassVar[bool] = True

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """The sample's first variant alone is measured."""
        attempt.measure.turn_to(sample)
        torch._inductor.config.compile_threads = 1  # processes enough are at work
        variant, found = sample.variants[0], self.passes / sample.sample / "pass"
        row = {"sample": sample.sample, "category": sample.category, "variant": variant.variant_hash,
               "dtype": floating_dtype(variant), "left_to_eager": int(not found.is_dir())}  # fmt: skip
        try:
            with torch.no_grad(), ExitStack() as stack:
                row |= _measured(attempt.measure, variant, found if found.is_dir() else None, stack)
        except Exception as error:
            row["reason"] = f"{type(error).__name__}: {error}"[:300]
            raise  # a failed capture leaves a process that is of no use
        finally:
            write_json(self.rows / f"{sample.sample}.json", row)
        return Submission("eager", reason="measured")


def _measured(measure: QuickMeasure, variant: Variant, pass_dir: Path | None, stack: ExitStack) -> dict[str, Any]:
    """How right each side is, and microseconds of its calls. Raises what eager raises, and what a capture does."""
    device = measure.device
    calls: dict[str, Callable] = {"eager": to_module(variant.graph, device).forward}
    if pass_dir is not None:
        captured.forget()
        rules = stack.enter_context(loaded_rules(pass_dir, read_pass_dir(pass_dir).names))
        module = to_module(variant.graph, device)
        if not apply_pass(module.graph, rules).total:
            raise PassNetError("the pass does not match")
        module.recompile()
        calls["pass"] = module.forward
    calls |= {side: build(name, to_module(variant.graph, device), device)
              for side, name in (("strict", STRICT), ("default", DEFAULT))}  # fmt: skip
    row: dict[str, Any] = {}
    for side, call in list(calls.items()):
        try:
            row[f"{side}_t_min"] = measure.rightness(variant, call)
        except Exception as error:  # a compiler may raise anything; a broken GPU raises again below
            if side == "eager":
                raise
            row["reason"] = f"{row.get('reason', '')} {side}: {type(error).__name__}: {error}"[:300].strip()
            del calls[side]
    with measure.turn():
        times, number = call_times(calls, lambda count: measure.fresh_rows(variant, count), device)
    return row | {"calls": number} | {f"{side}_us": round(us, 3) for side, us in times.items()}


def call_times(
    calls: Mapping[str, Callable], rows: Callable[[int], list[Row]], device: torch.device
) -> tuple[dict[str, float], int]:
    """Microseconds of a call of each side, and how many calls a graph has. `rows(n)` gives the inputs of n calls, in
    memory of their own."""
    first = calls["eager"]
    size = sum(x.numel() * x.element_size() for x in rows(1)[0] if isinstance(x, torch.Tensor))
    if device.type != "cuda":
        timers = {side: _HostTimer(call, rows(2)) for side, call in calls.items()}
        return _lower_quartiles(timers), 2
    few = _GraphTimer(first, rows(2), device)
    wanted = math.ceil(_GRAPH_US / max(_lower_quartiles({"eager": few})["eager"], 1.0))
    count = max(2, min(wanted, _MOST_CALLS, _MOST_BYTES // max(size, 1)))
    timers = {side: _GraphTimer(call, rows(count), device) for side, call in calls.items()}
    return _lower_quartiles(timers), count


def _lower_quartiles(timers: Mapping[str, Any]) -> dict[str, float]:
    """Of each timer's times, taken in turns. The first replay of each warms up."""
    found: dict[str, list[float]] = {side: [] for side in timers}
    for number in range(_REPLAYS + 1):
        for side, timer in timers.items():
            us = timer.time()
            if number:
                found[side].append(us)
    return {side: quantiles(us, n=4)[0] for side, us in found.items()}


class _GraphTimer:
    """Times replays of one CUDA graph of `call` on each of `rows`, whose values are written anew before each."""

    def __init__(self, call: Callable, rows: Sequence[Row], device: torch.device) -> None:
        self._given = [_memory(x) for row in rows for x in row if isinstance(x, torch.Tensor)]
        self._kept = [x.clone() for x in self._given]
        self._graph, self._calls = CapturedCalls(call, rows), len(rows)
        self._empty = EmptyReplay(device)

    def time(self) -> float:
        """Microseconds of a call."""
        if self._given:
            torch._foreach_copy_(self._given, self._kept)
        return max(_replay_us(self._graph) - _replay_us(self._empty), 0.001) / self._calls


def _memory(x: torch.Tensor) -> torch.Tensor:
    """The bytes that a tensor lies in: of one that is expanded, each is there once."""
    return torch.empty(0, dtype=torch.uint8, device=x.device).set_(x.untyped_storage())


def _replay_us(graph: CapturedCalls | EmptyReplay) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return 1000.0 * begin.elapsed_time(end)


class _HostTimer:
    def __init__(self, call: Callable, rows: Sequence[Row]) -> None:
        self._call, self._rows = call, rows

    def time(self) -> float:
        begin = time.perf_counter()
        for row in self._rows:
            self._call(*row)
        return (time.perf_counter() - begin) * 1e6 / len(self._rows)


def _right(row: Mapping[str, Any], side: str) -> bool:
    level = row.get(f"{side}_t_min")
    return level is not None and level <= LEVEL


def _mean(ratios: Sequence[float]) -> str:
    return f"{math.exp(math.fsum(map(math.log, ratios)) / len(ratios)):.3f} ({len(ratios)})" if ratios else "-"


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line per category: geometric means of speeds by the device's clock, each with how many samples it is of."""
    lines = ["| category | samples | strict right | distill right | distill | strict | over strict "
             "| where strict is right | over the faster of strict and default | where that is right |",
             "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for category in CATEGORIES:
        some = [{**r, "pass_us": r.get("pass_us") or (r["eager_us"] if r["left_to_eager"] else None)}
                for r in rows if r["category"] == category and r.get("eager_us")]  # fmt: skip
        both = [r for r in some if r["pass_us"] and r.get("strict_us")]
        three = [r for r in both if r.get("default_us")]
        if not both:
            continue
        fast = [(r["pass_us"], *min((r[f"{s}_us"], s) for s in ("strict", "default")), r) for r in three]
        cells = [
            category,
            len(both),
            sum(_right(r, "strict") for r in both),
            sum(bool(r["left_to_eager"]) or _right(r, "pass") for r in both),
            _mean([r["eager_us"] / r["pass_us"] for r in both]),
            _mean([r["eager_us"] / r["strict_us"] for r in both]),
            _mean([r["strict_us"] / r["pass_us"] for r in both]),
            _mean([r["strict_us"] / r["pass_us"] for r in both if _right(r, "strict")]),
            _mean([us / own for own, us, _, _ in fast]),
            _mean([us / own for own, us, side, r in fast if _right(r, side)]),
        ]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    for row in rows:
        if row.get("reason"):
            lines.append(f"{row['sample']}: {row['reason']}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("version", type=Path, help="directory of a dataset version")
    add("--split", default="eval,train", help="eval, train, or eval,train")
    add("--names", type=Path, metavar="FILE", required=True, help="a file with the names of the samples to take")
    add("--passes", type=Path, metavar="DIR", help="passes that are there: DIR/SAMPLE/pass; none is written")
    add("--search", type=float, default=6.0, metavar="SECONDS", help="what distill may spend on measuring a sample")
    add("--processes", type=int, default=8)
    add("--write", type=float, default=600.0, metavar="SECONDS", help="after these no further pass is written")
    add("--budget", type=float, default=3600.0, metavar="SECONDS", help="after these everything ends")
    add("--device", default="cuda:0" if torch.cuda.is_available() else "cpu")
    add("--out", type=Path, required=True)
    options = parser.parse_args()
    begin, device, cores = time.monotonic(), torch.device(options.device), os.sched_getaffinity(0)
    names = frozenset(options.names.read_text("utf-8").split())
    choice = Choice(tuple(options.split.split(",")), CATEGORIES, names, one_a_dtype=True, at_most=1, mixed=True)
    samples = chosen(Version.open(options.version), choice)
    kept, passes = options.out / "rows", options.passes or options.out / "written"
    kept.mkdir(parents=True, exist_ok=True)
    if options.passes is None:
        written = Answers(passes)
        author = replace(Tuned(), seconds=options.search)
        pool = AuthorPool(author, samples, written, device, options.processes, cores, options.out / "authors")
        pool.start()
        pool.finish(begin + min(options.write, options.budget))
        samples = [sample for sample in samples if written.of(sample) is not None]
        print(f"{len(samples)} samples are answered after {time.monotonic() - begin:.0f} s", flush=True)
    answers = Answers(options.out / "measured")
    pool = AuthorPool(Beside(passes, kept), samples, answers, device, options.processes, cores)
    pool.start()
    pool.finish(begin + options.budget)
    rows = [json.loads(file.read_text("utf-8")) for file in sorted(kept.glob("*.json"))]
    with (options.out / "rows.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    text = f"{len(rows)} of {len(samples)} samples after {time.monotonic() - begin:.0f} s\n{summary(rows)}"
    (options.out / "summary.txt").write_text(text, "utf-8")
    print(text)


if __name__ == "__main__":
    main()

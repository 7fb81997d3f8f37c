"""Where the noise of eager against itself comes from: every timed exchange of a few variants, under four arrangements.

    python -m benchmarks.passbench.aa_noise VERSION_DIR --out DIR [--names FILE] [--limit 8] [--pairs 32] [--budget 120]
        [--arrangements first] [--one-a-dtype] [--settled] [--sides eager,pass] [--off evidence]

Both sides run the same code, so that whatever differs between them is the measurement's. The arrangements of one pair
of workers follow each other: `first`, as they came; `asleep`, without the small kernel before each timed exchange;
`roles`, eager's worker as the candidate and the other way round; `fresh`, in fresh processes. A bias that stays when
roles change is the procedure's; one that changes its sign belongs to a process. `--settled` times as PassBench does, no
longer than the speedup takes to be known. DIR gets `exchanges.jsonl`, a line a variant and clock, `results.parquet`,
the rows as PassBench keeps them, and `summary.md`.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from agent.run.choose import Choice, chosen
from benchmarks.passbench import eager_as_pass
from passbench.bench import Bench
from passbench.result import Timing, VariantResult
from passbench.settings import Settings
from passbench.timing import device_clock, exchanges, stopwatch
from passbench.timing.statistics import Pairs
from passbench.timing.statistics import summarise as summarised
from passbench.workers.worker_pair import WorkerPair
from storage.parquet import write_rows
from storage.records import Sample
from storage.schema import RESULTS
from storage.versions.version import Version

ARRANGEMENTS = ("first", "asleep", "roles", "fresh")
_AWAKE = exchanges.PairExchanges.hand_over


class Recorder:
    """Keeps the pairs of each timing beside what `passbench.timing` makes of them."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[Pairs, Timing]] = {}

    def install(self) -> None:
        """Take the place of the functions that the clocks call."""
        stopwatch.summarise = device_clock.summarise = self._summarise

    def _summarise(self, clock: str, pairs: Pairs, *rest: object) -> Timing:
        timing = summarised(clock, pairs, *rest)
        self.kept[clock] = (pairs, timing)
        return timing

    def take(self) -> Iterator[dict]:
        """What was timed since the last call, one entry a clock."""
        for clock, (pairs, timing) in self.kept.items():
            in_one_order = exchanges.PAIRS_IN_ONE_ORDER if clock == "e2e" else device_clock.REPLAYS_OF_A_GRAPH
            yield {
                "clock": clock,
                "speedup": timing.speedup,
                "low": timing.speedup_low,
                "high": timing.speedup_high,
                "noisy": timing.noisy,
                "overhead_us": pairs.overhead_us,
                "calls": [x.calls for x in pairs.eager],
                "eager_us": [round(x.total_us, 2) for x in pairs.eager],
                "candidate_us": [round(x.total_us, 2) for x in pairs.candidate],
                "eager_host_us": [round(x.host_us, 3) for x in pairs.eager],
                "candidate_host_us": [round(x.host_us, 3) for x in pairs.candidate],
                "empty_us": [round(x, 2) for x in pairs.empty_us],
                "eager_first": [pairs.candidate_began == (n // in_one_order % 2 == 1) for n in range(len(pairs.eager))],
            }
        self.kept.clear()


def _arrange(bench: Bench, arrangement: str) -> None:
    """Bring the workers of a bench that has timed eager against itself into the next arrangement."""
    eager, candidate = bench._eager, bench._warm["eager"]
    plain = WorkerPair.hand_over
    exchanges.PairExchanges.hand_over = (
        (lambda checked, worker, layout: plain(checked.pair, worker, layout)) if arrangement == "asleep" else _AWAKE
    )
    if arrangement == "roles":
        bench._eager, bench._warm["eager"] = candidate, eager
    if arrangement == "fresh":
        for worker in (eager, candidate):
            worker.stop()


def _by_causes(lines: list[dict]) -> str:
    """Medians of speedups by side, arrangement and clock, and of what the sides' order and the exchange's length do."""
    text = ["| clock | arrangement | variants | median | mean distance from 1 | within 2 %, 3 % |", "|---" * 6 + "|"]
    for clock in sorted({line["clock"] for line in lines}):
        for arrangement in sorted({line["arrangement"] for line in lines}):
            found = [x["speedup"] for x in lines if (x["clock"], x["arrangement"]) == (clock, arrangement)]
            if found:
                off = [abs(s - 1) for s in found]
                shares = ", ".join(f"{sum(x <= w for x in off) / len(off):.0%}" for w in (0.02, 0.03))
                figures = f"{len(found)} | {statistics.median(found):.4f} | {statistics.fmean(off):.4f} | {shares}"
                text.append(f"| {clock} | {arrangement} | {figures} |")
    text.append("")
    for line in lines:
        ratios = [a / b for a, b in zip(line["eager_us"], line["candidate_us"], strict=True)]
        order = line["eager_first"][: len(ratios)]
        first, second = ([r for r, e in zip(ratios, order, strict=True) if e is x] for x in (True, False))
        parts = [f"{statistics.median(part):.4f}" if part else "-" for part in (ratios, first, second)]
        text.append(
            f"- {line['variant'][:8]} {line['clock']} {line['arrangement']}: {line['speedup']:.4f} "
            f"[{line['low']:.4f}, {line['high']:.4f}]; of whole exchanges {parts[0]}, eager first {parts[1]}, "
            f"second {parts[2]}; {statistics.median(line['calls']):.0f} calls in "
            f"{statistics.median(line['eager_us']):.0f} us, overhead {line['overhead_us']:.0f} us"
        )
    return "\n".join(text) + "\n"


def _sides(bench: Bench, sample: Sample, sides: list[str], passes: Path) -> Iterator[tuple[str, VariantResult]]:
    """The results of a sample under each side: eager as the candidate, and a pass that repeats eager's calls, where
    there can be one."""
    for side in sides:
        directory = passes / sample.sample
        if side == "eager":
            results = bench.run(sample, "eager")
        elif eager_as_pass.write(sample, directory):
            results = bench.run(sample, "pass", directory)
        else:
            continue
        for result in results:
            yield side, result


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--names", type=Path, help="a file with the names of the samples to take")
    parser.add_argument("--limit", type=int, default=8, help="samples; one variant of each")
    parser.add_argument("--pairs", type=int, default=32, help="exchanges of each side by each clock")
    parser.add_argument("--arrangements", default=",".join(ARRANGEMENTS), help="which, in this order")
    parser.add_argument("--one-a-dtype", action="store_true", help="of each sample the first variant of each dtype")
    parser.add_argument("--settled", action="store_true", help="time as PassBench does, instead of --pairs exchanges")
    parser.add_argument("--sides", default="eager", help="candidates: eager, and pass, which repeats eager's calls")
    parser.add_argument("--off", default="", help="layers of PassBench that are left out, separated by commas")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    end = time.monotonic() + given.budget
    names = frozenset(given.names.read_text("utf-8").split()) if given.names else None
    choice = Choice(
        names=names, limit=given.limit, one_a_dtype=given.one_a_dtype, at_most=None if given.one_a_dtype else 1
    )
    samples = chosen(Version.open(given.version), choice)
    recorder, lines, rows = Recorder(), [], []
    recorder.install()
    given.out.mkdir(parents=True, exist_ok=True)
    off = frozenset(filter(None, given.off.split(",")))
    settings = Settings(off=off)
    if not given.settled:
        settings = Settings(pairs=given.pairs, precision=0.0, repeats=0, double=False, off=off)
    with (
        Bench(given.device, settings) as bench,
        (given.out / "exchanges.jsonl").open("w") as stream,
        tempfile.TemporaryDirectory() as passes,
    ):
        for arrangement in given.arrangements.split(","):
            sides = given.sides.split(",") if arrangement == "first" else ["eager"]
            if arrangement != "first":
                _arrange(bench, arrangement)
            for sample in samples:
                if time.monotonic() > end:
                    break
                for side, result in _sides(bench, sample, sides, Path(passes)):
                    rows.append(result.to_row(run=arrangement, author=side))
                    name = arrangement if side == "eager" else f"{arrangement}, {side}"
                    about = {"arrangement": name, "variant": result.variant_hash, "seconds": result.seconds}
                    about |= {"phases": result.phases, "surroundings": result.surroundings}
                    for line in recorder.take():
                        lines.append(about | line)
                        print(json.dumps(lines[-1]), file=stream, flush=True)
                    if time.monotonic() > end:
                        break
    write_rows(given.out / "results.parquet", rows, RESULTS)
    (given.out / "summary.md").write_text(_by_causes(lines))
    print(_by_causes(lines))


if __name__ == "__main__":
    main()

"""Which blocks and warps are fastest on the device, region by region, beside strict TorchInductor; needs a GPU.

    python3 -m benchmarks.agent.launch_configs VERSION_DIR --names FILE [--workers N] [--out FILE]

Of each named sample the first variant is taken if one region computes it. Its kernels are written with `LaunchLimits`
of every `work` and `warps` below, compiled by N processes, and timed: calls on different inputs as one CUDA graph, as
PassBench's device clock does. Lines have blocks, rows by columns, and warps of each kernel, and microseconds a call.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton

from agent.distill.kernels.launch_configs import LaunchLimits, Tuning, choose
from agent.distill.kernels.schedule import KernelBody
from agent.distill.task_plan import Task
from agent.distill.tuned import Tuned
from agent.run.choose import Choice, chosen
from passbench.child.captured_calls import CapturedCalls, EmptyReplay
from passbench.compilers import build
from passbench.contract import NAMES_FILE, load_rules
from passbench.inputs.draw import make_inputs
from storage.graph.as_fx import to_module
from storage.records import Sample, dtype_of
from storage.versions.version import Version

WORK = (0.25, 0.5, 1.0, 2.0)
WARPS = (0.5, 1.0, 2.0, 4.0)
REPLAYS = 9
MOST_CALLS, MOST_BYTES = 24, 2 << 30


@dataclass(frozen=True)
class OneRegion:
    """A sample's first variant, and the kernels of the region that computes it."""

    sample: Sample
    task: Task
    bodies: tuple[KernelBody, ...]
    given: tuple[int, ...]

    @classmethod
    def of(cls, sample: Sample) -> "OneRegion | None":
        """None if it takes more than one region, or library calls."""
        task = Tuned().tasks_of(sample).task()
        candidates = task.graphs[0].candidates if task.graphs else ()
        if len(candidates) != 1:
            return None
        (candidate,) = candidates
        if any(number >= task.graphs[0].graph.inputs for number in candidate.region.inputs):
            return None
        return cls(sample, task, candidate.cases[0].sketch.bodies, candidate.region.inputs)

    def configurations(self) -> dict[tuple[Tuning, ...], LaunchLimits]:
        """Every different configuration with limits that lead to it."""
        limits = [LaunchLimits(work=work, warps=warps) for work in WORK for warps in WARPS]
        return {self.configuration(each): each for each in reversed(limits)}

    def configuration(self, limits: LaunchLimits) -> tuple[Tuning, ...]:
        """That of each kernel."""
        return tuple(choose(body, limits) for body in self.bodies)

    def written(self, limits: LaunchLimits, directory: Path) -> Callable[..., Any]:
        """The wrapper of a pass with these limits, as a function of the variant's inputs."""
        style = replace(Tuned().distill.style, limits=limits)
        self.task.write(tuple(self.task.gains()), style, directory)
        names = json.loads((directory / NAMES_FILE).read_text("utf-8"))
        wrapper = load_rules(directory, tuple(names))[0].replacement
        return lambda *inputs: wrapper(*[inputs[n] for n in self.given])

    def strict(self) -> Callable[..., Any]:
        """The variant by strict TorchInductor."""
        module = to_module(self.sample.variants[0].graph, "cuda")
        return build("inductor-strict-direct", module, torch.device("cuda"))

    def calls(self, device: str = "cuda") -> list[list[Any]]:
        """Inputs of so many calls as PassBench would capture, if the memory allows."""
        inputs = self.sample.variants[0].inputs
        size = sum(torch.Size(i.shape).numel() * dtype_of(i.dtype).itemsize for i in inputs)
        count = max(2, min(MOST_CALLS, MOST_BYTES // max(size, 1)))
        return [make_inputs(inputs, 0, n, device) for n in range(count)]


def compiled(version: Path, name: str) -> None:
    """Compile all configurations of a sample's kernels, and TorchInductor's; the caches on disk keep them."""
    (sample,) = _samples(version, [name])
    region = OneRegion.of(sample)
    if region is None:
        return
    inputs = region.calls()[0]
    for limits in region.configurations().values():
        with tempfile.TemporaryDirectory() as scratch:
            region.written(limits, Path(scratch) / "pass")(*inputs)
    region.strict()(*inputs)
    torch.cuda.synchronize()


def microseconds(call: Callable[..., Any], rows: Sequence[Sequence[Any]], empty: EmptyReplay) -> float:
    """Of the device, a call; the median of some replays of a CUDA graph."""
    graph = CapturedCalls(call, rows)
    times = [_replayed(graph) - _replayed(empty) for _ in range(REPLAYS)]
    return 1e3 * median(times) / len(rows)


def _replayed(graph: CapturedCalls | EmptyReplay) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def lines_of(region: OneRegion, empty: EmptyReplay) -> list[str]:
    """What is measured of one region."""
    rows, variant = region.calls(), region.sample.variants[0]
    usual, found = region.configuration(LaunchLimits()), {}
    for tunings, limits in region.configurations().items():
        with tempfile.TemporaryDirectory() as scratch:
            found[tunings] = microseconds(region.written(limits, Path(scratch) / "pass"), rows, empty)
    ops = ", ".join(name.rpartition(".")[2] for name in variant.graph.op_sequence)
    lines = [f"{region.sample.sample}, {variant.inputs[0].dtype}: {ops[:90]}"]
    lines += [f"  kernel of {body.rows} x {body.columns}, {_kind(body)}" for body in region.bodies]
    for tunings, time in sorted(found.items(), key=lambda item: item[1]):
        blocks = "; ".join(f"{t.row_block} x {t.column_block}, {t.warps} warps" for t in tunings)
        lines.append(f"  {time:8.2f}  {blocks}{'  as chosen' if tunings == usual else ''}")
    lines.append(f"  {microseconds(region.strict(), rows, empty):8.2f}  strict TorchInductor")
    return lines


def _kind(body: KernelBody) -> str:
    if body.columns == 1:
        return "elements"
    if body.flat is not None:
        return "tiles"
    return "rows in steps" if choose(body, LaunchLimits()).loops else "whole rows"


def _samples(version: Path, names: Sequence[str]) -> list[Sample]:
    return chosen(Version.open(version), Choice(splits=("eval", "train"), names=frozenset(names), at_most=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version", type=Path, help="directory of a dataset version")
    parser.add_argument("--names", type=Path, required=True, help="a file with the names of the samples to take")
    parser.add_argument("--workers", type=int, default=8, help="processes that compile")
    parser.add_argument("--out", type=Path, help="also write the lines to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("launch_configs.py measures kernels on an NVIDIA GPU, and there is none")
    names = options.names.read_text("utf-8").split()
    with ProcessPoolExecutor(options.workers, get_context("spawn")) as pool:
        list(pool.map(compiled, [options.version] * len(names), names))
    lines = [f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}; us a call"]
    empty = EmptyReplay(torch.device("cuda"))
    for sample in _samples(options.version, names):
        region = OneRegion.of(sample)
        new = lines_of(region, empty) if region else [f"{sample.sample}: more than one region, or library calls"]
        print(*new, sep="\n", flush=True)
        lines += new
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()

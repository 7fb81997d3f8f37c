"""Kernels counted by running: the reference for what `extraction.kernels.lowering` predicts from one schedule.

Ops `[start, end)` are compiled with `torch.compile` for growing `end`, as published for this dataset: one compilation a
prefix, and what it launches on the GPU is counted under the profiler (`extraction.kernels.profiled_launches`).
Kernel-count plateaus of the counts are the measured fusible ranges, by the rule of `extraction.cutting.plateaus`.

TorchInductor runs with its defaults but for the change of convolutions to channels-last, which is off: a prefix is a
piece of a model, and the conversions at its border are not needs of its ops. Each prefix is called twice before the
call that is counted, so that choosing configurations is over.

On a CPU TorchInductor writes C++; its kernels are counted in the code that it wrote. That checks the machinery; the
counts are not those of a GPU.
"""

import json
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch._functorch import config as functorch_config
from torch._inductor import config as inductor_config
from torch._inductor.utils import run_and_get_code
from torch.profiler import ProfilerActivity, profile

from extraction.analysis.prepared import Prepared
from extraction.cutting.cut import inputs_of
from extraction.cutting.plateaus import plateaus
from extraction.kernels.lowering import lowered
from extraction.kernels.profiled_launches import Launches, in_code, in_trace
from storage.errors import PassNetError, in_one_line
from storage.graph.as_fx import to_module
from storage.graph.as_json import to_json
from storage.graph.record import Graph, cut
from storage.records import Input, dtype_of

MAX_OPS = 100
"""Ops of a graph at most: each costs up to two compilations."""

_INDUCTOR = {"layout_optimization": False, "fx_graph_cache": False, "compile_threads": 1}
_FUNCTORCH = {"enable_autograd_cache": False}  # a cached graph has no code to show


class MeasureError(PassNetError):
    """A prefix that cannot be compiled, run or counted; the message says which and why."""


class OutOfTimeError(MeasureError):
    """The deadline passed before all prefixes were counted."""


@dataclass(frozen=True)
class Counted:
    """What one call of a compiled graph launched, by the profiler (on a CPU: by the code) and by the code."""

    launches: Launches
    in_code: Launches

    @property
    def kernels(self) -> int:
        """How many kernels the call needed."""
        return self.launches.kernels


@dataclass
class Measured:
    """Measured ranges, with the counts of the prefixes that told them.

    `seconds` is what one compilation for each of `counts` takes; equal prefixes are compiled once and their time counts
    each time.
    """

    ranges: list[tuple[int, int]] = field(default_factory=list)
    counts: dict[tuple[int, int], Counted] = field(default_factory=dict)
    seconds: float = 0.0
    compilations: int = 0


def count(graph: Graph, inputs: Sequence[Input], device: str) -> Counted:
    """Compiles a graph for "cuda" or "cpu", runs it on drawn inputs and counts what one call launches.

    Raises MeasureError where it cannot be compiled or run.
    """
    torch._dynamo.reset()
    try:
        with torch.no_grad(), inductor_config.patch(_INDUCTOR), functorch_config.patch(_FUNCTORCH):
            module = to_module(graph, device)
            arguments = [_drawn(each, number, device) for number, each in enumerate(inputs)]
            compiled = torch.compile(module.forward, dynamic=False, fullgraph=True)
            _, codes = run_and_get_code(compiled, *arguments)
            written = _joined([in_code(code) for code in codes])
            if device == "cpu":
                return Counted(written, written)
            compiled(*arguments)
            return Counted(_profiled(lambda: compiled(*arguments)), written)
    except Exception as error:  # TorchInductor, Triton and CUDA raise anything
        raise MeasureError(in_one_line(error)) from error


def measure(prepared: Prepared, device: str, deadline: float = float("inf")) -> Measured:
    """The measured fusible ranges of a graph of at most `MAX_OPS` ops, on "cuda" or "cpu".

    `deadline` is a time of `time.monotonic`. Raises OutOfTimeError when it passes, MeasureError where a prefix cannot
    be measured or the graph is too long.
    """
    ops = len(prepared.graph.ops)
    if ops > MAX_OPS:
        raise MeasureError(f"a graph of {ops} ops is too long to measure prefix by prefix; {MAX_OPS} are the limit")
    result = Measured()
    known: dict[str, tuple[Counted, float]] = {}

    def kernels(start: int, end: int) -> int:
        if (start, end) not in result.counts:
            graph, inputs = prefix(prepared, start, end)
            key = to_json(graph) + repr([(i.dtype, i.shape, i.stride) for i in inputs])
            if key not in known:
                if time.monotonic() > deadline:
                    raise OutOfTimeError(f"out of time at ops [{start}, {end})")
                begin = time.perf_counter()
                known[key] = (_counted(graph, inputs, device, start, end), time.perf_counter() - begin)
                result.compilations += 1
            result.counts[start, end], seconds = known[key]
            result.seconds += seconds
        return result.counts[start, end].kernels

    result.ranges = measured_ranges(prepared, kernels)
    return result


def measured_ranges(prepared: Prepared, kernels: Callable[[int, int], int]) -> list[tuple[int, int]]:
    """Plateaus of `kernels(start, end)`, the number of kernels that ops `[start, end)` need by themselves.

    Views, and what nothing reads, cost nothing and are not asked for.
    """
    return list(
        plateaus(
            len(prepared.graph.ops),
            costs=lambda op: prepared.computes(op) and not prepared.is_dead(op),
            joins=lambda start, op: kernels(start, op + 1) <= kernels(start, start + 1),
            barred=lambda op: prepared.barriers[op] is not None,
        )
    )


def prefix(prepared: Prepared, start: int, end: int) -> tuple[Graph, tuple[Input, ...]]:
    """Ops `[start, end)` as a graph of their own, whose outputs are what is read later, and its inputs.

    Raises MeasureError where something other than a tensor goes in.
    """
    part = cut(prepared.graph, start, end, prepared.last)
    try:
        return part.graph, inputs_of(prepared, part, start, end)
    except ValueError as error:
        raise MeasureError(f"ops [{start}, {end}): {error}") from error


def scheduled(graph: Graph, inputs: Sequence[Input], device: str = "reference") -> int:
    """How many kernels TorchInductor's schedule of this graph alone has: between a prediction and a measurement."""
    with lowered(graph, inputs, device) as result:
        return sum(kernel.kind != "nop" for kernel in result.kernels)


def _counted(graph: Graph, inputs: Sequence[Input], device: str, start: int, end: int) -> Counted:
    try:
        return count(graph, inputs, device)
    except MeasureError as error:
        raise MeasureError(f"ops [{start}, {end}): {error}") from error


def _joined(parts: Sequence[Launches]) -> Launches:
    return Launches(
        tuple(name for part in parts for name in part.generated), tuple(name for part in parts for name in part.called)
    )


def _profiled(call: Callable[[], Any]) -> Launches:
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return in_trace(json.loads(path.read_text())["traceEvents"])


def _drawn(each: Input, seed: int, device: str) -> torch.Tensor:
    """A tensor as the record says; the values matter only so far as indices must stay within their tables."""
    generator = torch.Generator(device).manual_seed(seed)
    dtype = dtype_of(each.dtype)
    result = torch.empty_strided(each.shape, each.stride, dtype=dtype, device=device)
    low, high = each.low, each.high
    if not (dtype.is_floating_point or dtype.is_complex):
        low, high = int(low or 0), int(high if high is not None else 1)
        values = torch.randint(low, max(high, low) + 1, each.shape, generator=generator, device=device)
    elif low is None or high is None:
        values = torch.randn(each.shape, generator=generator, device=device)
    else:
        values = torch.rand(each.shape, generator=generator, device=device) * (high - low) + low
    for dim, (size, step) in enumerate(zip(each.shape, each.stride, strict=True)):
        if step == 0 and size > 1:  # expanded: all elements of the dimension are one
            values, result = values.narrow(dim, 0, 1), result.narrow(dim, 0, 1)
    result.copy_(values)
    return result.expand(each.shape)

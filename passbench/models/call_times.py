"""How long calls take: whole calls with a synchronisation at both ends, in turn, medians; and the nodes of a graph."""

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import fx
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

SECONDS = 0.5
"""Time that all rounds of a comparison take, about."""
ROUNDS = (5, 60)
"""Rounds at least and at most; each round calls every function once, in an order of its own."""

PROFILED = 3
"""Calls that are profiled; times are of one."""


def call_times(
    functions: Mapping[str, Callable[[], object]], device: torch.device, seconds: float = SECONDS
) -> dict[str, float]:
    """Median microseconds of a call of each function, the host's part included."""
    if not functions:
        return {}
    names = list(functions)
    for name in names:
        _once(functions[name], device)
    round_seconds = sum(_once(functions[name], device) for name in names) / 1e6
    rounds = min(max(int(seconds / max(round_seconds, 1e-6)), ROUNDS[0]), ROUNDS[1])
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            times[name].append(_once(functions[name], device))
    return {name: statistics.median(found) for name, found in times.items()}


def back_to_back(function: Callable[[], object], device: torch.device, calls: int = 20) -> float:
    """Microseconds of a call among several that are not waited for: the longer of the host's and the device's part."""
    function()
    wait(device)
    begin = time.perf_counter()
    for _ in range(calls):
        function()
    wait(device)
    return (time.perf_counter() - begin) / calls * 1e6


def wait(device: torch.device) -> None:
    """Until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _once(function: Callable[[], object], device: torch.device) -> float:
    wait(device)
    begin = time.perf_counter()
    function()
    wait(device)
    return (time.perf_counter() - begin) * 1e6


@contextmanager
def recorded(*kinds: ProfilerActivity) -> Iterator[profile]:
    """The profiler's recording of a block.

    Without a GPU its library would write to standard error that it has found none, as an error. It reads what it may
    say from the environment, when it is used first.
    """
    if not torch.cuda.is_available():
        os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # above its errors
    with profile(activities=kinds, acc_events=True) as recording:
        yield recording


class _Named(fx.Interpreter):
    """Runs a graph with a range of the profiler's around each node."""

    def run_node(self, node: fx.Node) -> Any:
        with record_function(f"node {node.name}"):
            return super().run_node(node)


def node_times(module: fx.GraphModule, inputs: Sequence[torch.Tensor]) -> dict[str, float]:
    """Microseconds of each node in eager: of its kernels on a GPU, else of the host."""
    gpu = torch.cuda.is_available()
    kinds = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * gpu
    with torch.no_grad():
        _Named(module).run(*inputs)
        with recorded(*kinds) as seen:
            for _ in range(PROFILED):
                _Named(module).run(*inputs)
            if gpu:
                torch.cuda.synchronize()
    ranges = [event for event in seen.key_averages() if event.key.startswith("node ")]
    return {
        event.key.removeprefix("node "): (event.device_time_total if gpu else event.cpu_time_total) / PROFILED
        for event in ranges
        if event.device_type == DeviceType.CPU  # the same range on the GPU holds the gaps between its kernels
    }

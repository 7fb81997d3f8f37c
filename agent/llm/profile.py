"""Where eager's time goes in a variant: each op by itself, through `fx.Interpreter`, in this process.

The graph is the dataset's own, rebuilt through the allowlist of targets; nothing of a pass runs here.
"""

import statistics
import time
from typing import Any, NamedTuple

import torch
from torch import fx

from passbench.inputs.distribution import Distribution
from passbench.inputs.draw import make_inputs
from storage.graph.as_fx import to_fx
from storage.records import Variant

_WARM, _CALLS = 3, 10


class OpTime(NamedTuple):
    """An op by its name in the rendered source (`tmp_0`), what it calls, and its median time in microseconds, device
    synchronised before and after."""

    name: str
    called: str
    us: float


def op_times(variant: Variant, device: str) -> list[OpTime]:
    """Times of the variant's ops, in graph order. Raises what eager raises, out of memory among it."""
    module = fx.GraphModule(torch.nn.Module(), to_fx(variant.graph, device))
    clock = _Clock(module, torch.device(device))
    with torch.no_grad():
        for call in range(_WARM + _CALLS):
            clock.counted = call >= _WARM
            clock.run(*make_inputs(variant.inputs, 0, call, device, Distribution.NORMAL))
    if clock.device.type == "cuda":
        torch.cuda.empty_cache()  # the workers that PassBench times need the memory
    return [
        OpTime(f"tmp_{number}", called, statistics.median(times))
        for number, (called, times) in enumerate(zip(variant.graph.op_sequence, clock.times.values(), strict=True))
    ]


class _Clock(fx.Interpreter):
    """Runs a graph and notes how long each op takes."""

    def __init__(self, module: fx.GraphModule, device: torch.device) -> None:
        super().__init__(module)
        self.device, self.counted = device, False
        self.times: dict[fx.Node, list[float]] = {
            node: [] for node in module.graph.nodes if node.op in ("call_function", "call_method")
        }

    def run_node(self, n: fx.Node) -> Any:
        if n not in self.times:
            return super().run_node(n)
        self._synchronise()
        begin = time.perf_counter_ns()
        value = super().run_node(n)
        self._synchronise()
        if self.counted:
            self.times[n].append((time.perf_counter_ns() - begin) / 1000)
        return value

    def _synchronise(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

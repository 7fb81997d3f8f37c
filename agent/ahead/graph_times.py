"""What calls take by the device's clock as PassBench reads it: several of them captured in one CUDA graph.

Handed over one by one, short kernels are further apart on the GPU than they take, and a pass that is a CUDA graph
itself (`passbench.launch.captured`) copies its inputs and results. In PassBench's graph it does neither. So a search
that timed calls one by one chose by another clock than the one that judges: `typical-8af82194aa2d` had a device's
speedup of 3.6 in its search and 4.7 in PassBench, and one without branches, 5.5, was not taken
(`benchmarks/passbench/h200_table_290`). For the same reason each call of a graph has inputs of its own, which come from
memory as PassBench's do (`own_inputs.py`).

There are about as many calls as in PassBench's graph. With half of them the inputs stayed in a cache of 50 MB: of 18
samples whose inputs took 24 to 60 MB in PassBench's graph and at most three quarters of that here, 12 were 5 to 27 %
faster in the search than in PassBench (the same benchmark's samples on an H100).
"""

import functools
import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import torch

from agent.ahead.device_wait import microseconds
from agent.ahead.gpu_memory import lacks_memory
from agent.ahead.own_inputs import MOST_BYTES, OwnInputs, Row, row_bytes
from passbench.child.captured_calls import CapturedCalls, EmptyReplay
from passbench.child.outputs import flatten

_GRAPH_US = 12_000.0
"""What the calls of a graph should take eager, host included: to capture them takes about as long."""
_MOST = 128
"""Calls in a graph, at most; so many has PassBench's of what is short."""
_KEPT_BYTES, _LEAST = 128 << 20, 2
"""What the results of a graph's calls may take, which it keeps; so many calls there are anyway."""
_RECENT = 9
"""Replays without calls of which the median counts. One of them was taken off before: of a graph of ten calls of 1.6 us
each, its half a microsecond is 3 %."""
_AHEAD_CYCLES, _MOST_AHEAD = 400_000, 3_200_000
"""Of the GPU's clock: it waits for 0.2 ms, in which the host hands over a graph, and for up to 1.6 ms if that takes
longer: a graph may have a thousand kernels."""

Call = Callable[..., Any]


def calls_in_graph(call_us: float, result_bytes: int, input_bytes: int = 0) -> int:
    """How many calls a graph has of which each takes so many microseconds, and results and inputs of so many bytes."""
    fitting = min(_KEPT_BYTES // max(1, result_bytes), MOST_BYTES // max(1, input_bytes))
    return max(_LEAST, min(math.ceil(_GRAPH_US / call_us), _MOST, fitting))


class GraphTimer:
    """Times replays of one CUDA graph of a call on each of some `inputs`, to which it must not write."""

    def __init__(self, captured: CapturedCalls, inputs: OwnInputs) -> None:
        self._captured, self.inputs = captured, inputs
        _replay_us(captured)  # brings the graph to the device

    @property
    def rows(self) -> Sequence[Row]:
        """The inputs of the calls."""
        return self._captured.rows

    def call_us(self) -> float:
        """Microseconds of the device for a call, by one replay on inputs that were just written."""
        taken = _replay_us(self._captured, self.inputs.write) - _empty(_device()).us()
        return max(taken, 0.001) / len(self.rows)


class SideGraphs:
    """The timers of eager's calls and of the candidates beside them. Eager's is made once."""

    def __init__(self) -> None:
        self._eager: list[GraphTimer | None] = []

    def of(
        self, eager: Call, candidate: Call, rows: Callable[[int], list[Row]], last: bool = False
    ) -> dict[str, GraphTimer]:
        """Those of "eager" and of a "candidate", which have run before; none where one of them cannot be captured.

        `rows` gives the inputs of so many calls. Raises what CUDA raises where the GPU works no more, and what says so
        where it has no memory left (`gpu_memory.lacks_memory`). `last`: where it has none for eager's, there are none
        for any candidate: all of them have one clock.
        """
        if not self._eager:
            (row,) = rows(1)
            torch.cuda.synchronize()
            begin = time.perf_counter()
            results = flatten(eager(*row))
            torch.cuda.synchronize()
            us = 1e6 * (time.perf_counter() - begin)
            size = sum(x.numel() * x.element_size() for x in results if isinstance(x, torch.Tensor))
            calls = calls_in_graph(us, size, row_bytes(row))
            try:
                self._eager.append(graph_timer(eager, OwnInputs(rows(calls))))
            except torch.OutOfMemoryError:
                if not last:
                    raise
                self._eager.append(None)
        own = self._eager[0]
        other = graph_timer(candidate, own.inputs) if own is not None else None
        return {"eager": own, "candidate": other} if own is not None and other is not None else {}


def graph_timer(call: Call, inputs: OwnInputs) -> GraphTimer | None:
    """The timer of a call that has run before; None where it cannot be captured, since the host waits for the device
    in it. Raises what CUDA raises where the GPU works no more, or has no memory left."""
    try:
        with _waits_are_errors():
            call(*inputs.rows[0])
        with torch.cuda.stream(torch.cuda.current_stream()):  # a capture that fails leaves its own as the current one
            return GraphTimer(CapturedCalls(call, inputs.rows), inputs)
    except RuntimeError as error:
        torch.cuda.synchronize()  # raises where the GPU works no more
        EmptyReplay(_device())  # torch's random generator is taken out of a failed capture by one that ends
        if lacks_memory(error):
            raise
        return None


@contextmanager
def _waits_are_errors() -> Iterator[None]:
    """Torch raises RuntimeError where the host waits for the device. Within a capture that would be the end of it."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, that it does not find all such places
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


class RecentMedian:
    """The median of what was told lately: single answers scatter, and what is asked for does not change."""

    def __init__(self, tell: Callable[[], float]) -> None:
        self._tell, self._told = tell, deque[float](maxlen=_RECENT)

    def us(self) -> float:
        """Tell once more, and return the median."""
        self._told.append(self._tell())
        return median(self._told)


@functools.cache
def _empty(device: torch.device) -> RecentMedian:
    """What a replay takes beside its calls."""
    replay = EmptyReplay(device)
    return RecentMedian(lambda: _replay_us(replay))


def _device() -> torch.device:
    return torch.device("cuda", torch.cuda.current_device())


def _replay_us(graph: CapturedCalls | EmptyReplay, before: Callable[[], None] = lambda: None) -> float:
    def prepare() -> Callable[[], None]:
        before()
        return graph.replay

    return microseconds(prepare, _AHEAD_CYCLES, _MOST_AHEAD)

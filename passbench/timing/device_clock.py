"""The device clock: what the GPU takes for a call when the host costs nothing.

Many calls on different inputs are captured in one CUDA graph, on each side alike. The parent's clock times replays of
it. Before each replay the parent writes new inputs and both poison the outputs; afterwards all outputs are compared.
A replay begins with a wait on the device, in which the host brings the whole graph there.
What an exchange costs beside the calls is measured with a graph of one small kernel in eager's worker, which no pass
can influence, and is taken off both sides.

Where a side cannot be captured, both sides are timed by how long their kernels were at work, as CUPTI tells it in the
worker. That figure is the child's word, so that it is taken for baselines alone: a pass that cannot be captured has no
device time. `Times.device_method` says which one a figure is.
"""

import math

from passbench.inputs.batch_layout import BatchLayout
from passbench.inputs.distribution import Distribution
from passbench.ipc.messages import (
    ArmReplay,
    CaptureCalls,
    Code,
    Collect,
    CollectReplayed,
    Go,
    Profile,
    ReplayCalls,
)
from passbench.result import Timing
from passbench.timing.exchanges import PairExchanges
from passbench.timing.statistics import Exchange, Pairs, planned, settled, summarise
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_process import WorkerDied, WorkerTimeout

GRAPH, KERNELS = "graph", "kernels"
"""Methods of the device clock."""

REPLAYS_OF_A_GRAPH = 8
"""Of a timed graph, all in one order of the sides."""

_PRECISION = 0.01  # of the speedup; replays vary little
_SHARE = 0.5  # of `Settings.timing_budget`
_GRAPH_US = 600.0  # that the calls of a replay should take: an exchange varies by microseconds, whatever is in it
_MOST_CAPTURED = 128  # calls of a timed graph; to capture one takes several times as long as to make it
_PROBED = 16  # calls of the graph that tells roughly how long they take
_SEALED_GRAPHS = 2  # as large as timed ones; which of all graphs they are is random
_MOST_SEALED = 96  # calls of such a graph that are sealed
_COMPARED_REPLAYS = 2  # of such a graph
_REPEATS = 1
_LEAST_PAIRS = 5
_EMPTY = 3  # exchanges of no calls for each graph
_PROFILED_PAIRS = 5
_PROFILED_CALLS = 64


class Uncapturable(Exception):
    """A side cannot be captured; its worker is of no use any more."""

    def __init__(self, worker: WorkerHandle, why: str) -> None:
        super().__init__(why)
        self.worker = worker


class DeviceClock:
    """Times one variant, whose outputs have been found correct, on a GPU."""

    def __init__(self, exchanges: PairExchanges) -> None:
        self._exchanges, self._pair, self._settings = exchanges, exchanges.pair, exchanges.pair.settings

    def by_graph(self, size: int, seconds: float) -> Timing:
        """Times of replays. `size`: about how many calls a graph holds, or more where they are soon over. `seconds`:
        what a call of both sides takes, host included.

        Both sides are captured again, before or after, with sealed calls: within such a graph, a call's inputs arrive
        right before it and its outputs are taken right after. A pass that computes several captured calls at once is
        found out there. It cannot tell such a graph from a timed one, whose numbers of calls and replays are alike, and
        whose inputs lie alike.
        Raises Uncapturable, and VariantFailure as every exchange does.
        """
        size = self.graph_size(size)
        before = self._pair.rng.randint(0, _SEALED_GRAPHS)
        self._check_sealed(size, before)
        timing = self._time_replays(size, seconds)
        self._check_sealed(size, _SEALED_GRAPHS - before)
        return timing

    def by_kernels(self) -> Timing | None:
        """Times in which kernels, copies and fills were at work; None if the profiler records nothing."""
        pairs, most = Pairs(empty_us=[0.0]), min(_PROFILED_CALLS, self._pair.most_calls())
        for _ in range(_PROFILED_PAIRS):
            layout = self._pair.draw(most, self._pair.outputs, Distribution.VARIED)
            seed = self._pair.rng.getrandbits(32)
            for worker, done in self._exchanges.in_turn(pairs):
                total_us = self._profile(worker, layout, seed)
                if total_us <= 0:
                    return None
                done.append(Exchange(most, total_us))
            self._exchanges.compare(layout)
        return summarise("device", pairs, self._settings.noise)

    def _graph(self, size: int, pairs: Pairs, *, sealed: bool = False) -> BatchLayout:
        """A fresh layout of about `size` calls, captured on both sides, in the order of the next of `pairs`."""
        calls = self._pair.about(size)
        how = {"sealed" if sealed else "like_sealed": _MOST_SEALED}
        layout = self._pair.draw(calls, self._pair.outputs, Distribution.VARIED, **how)
        for worker, _ in self._exchanges.in_turn(pairs, REPLAYS_OF_A_GRAPH):
            self.capture(worker, layout)
        return layout

    def graph_size(self, size: int) -> int:
        """About how many calls a graph should hold so that its calls take `_GRAPH_US` on the faster side, and `size` at
        least; a small graph tells. Raises as `by_graph`."""
        pairs = Pairs(candidate_began=False)  # where neither side can be captured, it is eager that cannot
        layout = self._graph(min(size, _PROBED), pairs)
        self._replay_both(layout, pairs)
        empty_us = self._replay(self._pair.eager, layout, empty=True)
        shortest_us = min(side[-1].total_us for side in (pairs.eager, pairs.candidate)) - empty_us
        wanted = math.ceil(layout.batch.calls * _GRAPH_US / max(shortest_us, 1.0))
        return min(max(size, wanted), self._pair.most_calls(_MOST_CAPTURED))

    def _time_replays(self, size: int, seconds: float) -> Timing:
        """Times of replays of a few graphs, so that no single place in memory decides."""
        settings = self._settings
        affordable = max(_LEAST_PAIRS, math.floor(_SHARE * settings.timing_budget / (seconds * size)))
        plan = planned(settings.pairs, math.ceil(settings.calls / size), affordable, min(settings.repeats, _REPEATS))
        pairs = Pairs()
        for done in range(1, plan.most + 1):
            if done % REPLAYS_OF_A_GRAPH == 1:
                layout = self._graph(size, pairs)
            self._replay_both(layout, pairs)
            # Not before the graph's first replays, each of which comes after one of the other worker's.
            if done % REPLAYS_OF_A_GRAPH == min(_LEAST_PAIRS, plan.few):
                pairs.empty_us += self.empty_replays(layout)
            if plan.looks(done):
                timing = summarise("device", pairs, settings.noise, plan.repeats(done))
                if settled(timing, min(settings.precision, _PRECISION)):
                    break
        return timing

    def _check_sealed(self, size: int, graphs: int) -> None:
        """Compare the outputs of both sides' calls in so many graphs with sealed calls.

        Such a graph is replayed as often as a timed one, or less, and outputs of a few replays at random are compared:
        a kernel that counts replays cannot tell when it is looked at.
        """
        layers, rng = self._pair.layers, self._pair.rng
        for _ in range(graphs if layers.has("sealed_calls") and layers.has("timed_outputs_checked") else 0):
            pairs = Pairs(candidate_began=False)
            layout = self._graph(size, pairs, sealed=True)
            compared = rng.sample(range(REPLAYS_OF_A_GRAPH), _COMPARED_REPLAYS)
            for number in range(max(compared) + 1):
                if number in compared:
                    self._replay_both(layout, pairs)
                else:
                    self._pair.refill(layout, Distribution.VARIED)
                    self._replay(self._pair.candidate, layout, seed=rng.getrandbits(32))

    def capture(self, worker: WorkerHandle, layout: BatchLayout) -> None:
        """Have a worker capture the calls of a layout, whose inputs are drawn. Raises Uncapturable."""
        strict = self._pair.layers.has("output_contract")
        self._pair.hand_over(worker, layout)
        try:
            command = CaptureCalls(layout.batch, self._pair.outputs, strict)
            with self._pair.phases(f"{'eager' if worker is self._pair.eager else 'candidate'} CaptureCalls"):
                reply = worker.ask(command, self._settings.call_timeout)
        except (WorkerDied, WorkerTimeout) as error:
            raise Uncapturable(worker, str(error)) from None
        if reply.code is not Code.OK:
            raise Uncapturable(worker, reply.text or reply.code.name)

    def _replay_both(self, layout: BatchLayout, pairs: Pairs) -> None:
        """One replay of each side on the same fresh inputs, in random order; all outputs are compared."""
        self._pair.refill(layout, Distribution.VARIED)
        seed = self._pair.rng.getrandbits(32)
        for worker, done in self._exchanges.in_turn(pairs, REPLAYS_OF_A_GRAPH):
            done.append(self.timed_replay(worker, layout, seed))
        self._exchanges.compare(layout)

    def timed_replay(self, worker: WorkerHandle, layout: BatchLayout, seed: int) -> Exchange:
        """One replay of a worker, whose outputs are collected. Raises VariantFailure."""
        total_us = self._replay(worker, layout, seed=seed)
        self._exchanges.collect(worker, layout, CollectReplayed())
        return Exchange(layout.batch.calls, total_us)

    def empty_replays(self, layout: BatchLayout) -> list[float]:
        """Microseconds that exchanges of eager's worker take without any call."""
        return [self.empty_replay(layout) for _ in range(_EMPTY)]

    def empty_replay(self, layout: BatchLayout) -> float:
        """Microseconds that one of them takes."""
        return self._replay(self._pair.eager, layout, empty=True)

    def _replay(self, worker: WorkerHandle, layout: BatchLayout, *, seed: int = 0, empty: bool = False) -> float:
        """Microseconds that the exchange of one replay takes, or that of no calls."""
        timeout = self._settings.call_timeout
        self._pair.ask(worker, ArmReplay(seed, empty), timeout)
        self._exchanges.hand_over(worker, layout)  # only now: nothing of a pass runs between that and the clock
        return self._pair.timed(worker, ReplayCalls(empty), timeout)[1] / 1000

    def _profile(self, worker: WorkerHandle, layout: BatchLayout, seed: int) -> float:
        """Microseconds that the device is busy with the calls of a layout."""
        self._pair.stage(worker, layout, seed, Go())
        self._exchanges.hand_over(worker, layout)
        reply = self._pair.ask(worker, Profile(), self._settings.call_timeout)
        self._exchanges.collect(worker, layout, Collect())
        return reply.device_us * layout.batch.calls

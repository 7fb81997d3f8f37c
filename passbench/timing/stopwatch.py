"""Timing a variant: exchanges of eager and candidate in pairs on the same fresh inputs, by the parent's clock."""

import contextlib
import math
import time
from collections.abc import Callable, Sequence

from passbench.inputs.distribution import Distribution
from passbench.launch.garbage_collection import without_collection
from passbench.result import NO_GRAPH_OF_CANDIDATE, NO_GRAPH_OF_EAGER, Times, Timing, VariantFailure
from passbench.timing import bandwidth, cores
from passbench.timing.alone import refusal
from passbench.timing.device_clock import GRAPH, KERNELS, DeviceClock, Uncapturable
from passbench.timing.exchanges import PairExchanges
from passbench.timing.statistics import LEAST_US, Pairs, disturbed, planned, settled, summarise
from passbench.workers.worker_pair import SEALED, WorkerPair

_FIRST_BATCH = 10
_LEAST_PAIRS = 3
_MOST_PAIRS = 20  # that it should take to make `Settings.calls` calls
_NOTE_LETTERS = 300
_ALONE = 5  # exchanges of one call, at random moments of the timing of a pass
_MOST_MOVES = 4  # to other cores, of a variant
_OBSERVED = 2  # exchanges at random moments of the timing, beside the one before it


def check_bandwidth(pair: WorkerPair, timings: Sequence[Timing]) -> None:
    """Nothing that writes its outputs is faster than the memory. Raises VariantFailure."""
    floor = bandwidth.floor_us(pair.outputs, pair.device)
    if floor is None or not pair.layers.has("bandwidth"):
        return
    pair.layers.note("bandwidth")
    fastest = min(t.candidate_us for t in timings)
    if fastest < floor:
        reason = f"bandwidth: {fastest:.1f} us a call; writing the outputs alone takes {floor:.1f}"
        raise VariantFailure("rejected", reason)


class Stopwatch:
    """Times one variant, whose outputs have been found correct. For one use.

    `observe` makes an exchange of about so many calls that is observed instead of timed; it is called at random moments
    of the e2e timing. It raises VariantFailure. `believed`: the candidate is no pass, so that its worker's own word of
    device times is taken where there are no others, and nobody asks for calls made alone.
    """

    def __init__(self, exchanges: PairExchanges, observe: Callable[[int], None], *, believed: bool = True) -> None:
        pair = exchanges.pair
        self._exchanges, self._pair, self._settings, self._observe = exchanges, pair, pair.settings, observe
        self._workers, self._believed = (pair.eager, pair.candidate), believed
        self._cores = cores.choose(pair.device)
        self._moves = 0

    def measure(self) -> Times:
        """Times by both clocks, "device" on a GPU alone. Raises VariantFailure."""
        device, method, note, broken = None, None, "", None
        clock = DeviceClock(self._exchanges)
        pinned = cores.on_cores(self._cores.parent) if self._cores else contextlib.nullcontext()
        with without_collection(), pinned:  # of the parent, whose clock it is; the child collects nothing either
            self._pin()
            size, slowest = self._warm_up()
            e2e = self._end_to_end(size, slowest)
            if self._pair.device.type == "cuda":
                try:
                    device, method = clock.by_graph(size, slowest), GRAPH
                except Uncapturable as failure:
                    broken = failure.worker
                    side = NO_GRAPH_OF_EAGER if broken is self._pair.eager else NO_GRAPH_OF_CANDIDATE
                    note = f"{side}: {failure}"[:_NOTE_LETTERS]
            self._check_pinned()
        if broken is not None and self._believed:
            self._pair.restart(broken)
            device = clock.by_kernels()
            method = KERNELS if device else None
        elif broken is not None:
            broken.stop()
        timings = (e2e,) if device is None else (e2e, device)
        check_bandwidth(self._pair, timings)
        self._pair.layers.note("parent_clock", "late_inputs", "sealed_calls", "timed_outputs_checked")
        return Times(timings, method, note)

    def _pin(self) -> None:
        if self._cores is not None:
            for worker in self._workers:
                worker.pin(self._cores.children)

    def _check_pinned(self) -> None:
        if self._cores is None:
            return
        self._refuse_moved()
        for worker in self._workers:
            worker.unpin()

    def _refuse_moved(self) -> None:
        if not self._pair.candidate.pinned(self._cores.children):
            raise VariantFailure("rejected", "affinity: the pass moved its process to another core")

    def _warm_up(self) -> tuple[int, float]:
        """Time exchanges that do not count. Returns the calls in an exchange, and the seconds that a call of both sides
        takes.

        The last exchange is of full size, so that memory caches are as warm as they will be in the timing.
        """
        pairs, most = Pairs(), self._pair.most_calls()
        self._time_pair(pairs, max(2, min(_FIRST_BATCH, most)))
        eager, candidate = (exchanges[-1] for exchanges in (pairs.eager, pairs.candidate))
        fastest = max(min(eager.host_us, candidate.host_us), LEAST_US)
        slowest = (eager.total_us + candidate.total_us) / eager.calls / 1e6
        wanted = max(math.ceil(self._settings.batch_us / fastest), math.ceil(self._settings.calls / _MOST_PAIRS))
        size = max(2, min(most, wanted + 1))  # the first is not timed
        while True:
            self._time_pair(pairs, size)
            if pairs.calls >= self._settings.warmup or slowest * pairs.calls > self._settings.timing_budget:
                return size, slowest

    def _end_to_end(self, size: int, slowest: float) -> Timing:
        settings, pairs = self._settings, Pairs()
        affordable = max(_LEAST_PAIRS, math.floor(settings.timing_budget / (slowest * size)))
        enough = math.ceil(settings.calls / self._pair.fewest_timed(size))
        plan = planned(settings.pairs, enough, affordable, settings.repeats)
        trusted = not self._pair.layers.has("parent_clock")
        moments = [self._pair.rng.randrange(plan.wanted) for _ in range(_OBSERVED)]
        alone, lone = Pairs(), [] if self._believed else [self._pair.rng.randrange(plan.few) for _ in range(_ALONE)]
        for done in range(1, plan.most + 1):
            self._time_pair(pairs, size)
            for _ in range(moments.count(done - 1)):
                self._observe(size)
            for _ in range(lone.count(done - 1)):
                self._time_pair(alone, 1)
            if plan.looks(done):
                with self._pair.phases("statistics"):
                    timing = summarise("e2e", pairs, settings.noise, plan.repeats(done), trusted)
                if settled(timing, settings.precision):
                    break
                self._avoid_disturbance(pairs)
        for _ in (moment for moment in moments if moment >= done):
            self._observe(size)
        if lone and self._pair.device.type == "cuda":  # times on a CPU mean nothing
            self._check_alone(alone, timing)
        return timing

    def _avoid_disturbance(self, pairs: Pairs) -> None:
        """Move both workers to another core where most of the latest exchanges were disturbed."""
        if self._cores is not None and self._cores.others and self._moves < _MOST_MOVES and disturbed(pairs):
            self._moves += 1
            self._refuse_moved()
            with self._pair.phases("choose cores"):
                self._cores = self._cores.elsewhere()
                self._pin()

    def _check_alone(self, alone: Pairs, together: Timing) -> None:
        """Refuse a candidate whose calls take far longer alone than among others, and still do when asked again."""

        def ask(pause: float) -> None:
            time.sleep(pause)
            for _ in range(_ALONE):
                self._time_pair(alone, 1)

        if reason := refusal(alone, together, ask):
            raise VariantFailure("rejected", reason)

    def _time_pair(self, pairs: Pairs, size: int) -> None:
        """One exchange of about `size` calls of each worker on the same fresh inputs, in random order; of one call if
        that is the size.

        Afterwards the inputs are checked, and the outputs of every call are compared with eager's.
        """
        pair = self._pair
        calls = pair.about(size) if size > 1 else 1
        sealed = SEALED if calls > 1 else 0
        layout = pair.draw(calls, pair.outputs, Distribution.VARIED, sealed=sealed, rehearsed=True)
        seed = pair.rng.getrandbits(32)
        go = pair.as_timed(seed)
        for worker, done in self._exchanges.in_turn(pairs):
            done.append(self._exchanges.timed(worker, layout, go, seed))
        self._exchanges.compare(layout)

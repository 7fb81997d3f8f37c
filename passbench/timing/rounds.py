"""Timing several candidates beside one eager: in each round all of them run on the same fresh inputs, one by one.

An exchange is as `Stopwatch` and `DeviceClock` make it. Eager's of a round counts for all candidates, and inputs are
drawn once for all. Left out is what guards against passes that want to deceive: sealed graphs, calls made alone,
observed calls at random moments. Nothing is timed for longer because it is noisy.

End to end, passes that share a process were about a tenth slower here than in whole trials (0.91 of the speed, 29
sole_op passes). `benchmarks/passbench/h100_table_276` says what was excluded, and what of it a process no longer keeps.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from passbench.inputs.batch_layout import BatchLayout
from passbench.inputs.distribution import Distribution
from passbench.ipc.messages import Go
from passbench.launch.garbage_collection import without_collection
from passbench.layers import Layers
from passbench.result import NO_GRAPH_OF_CANDIDATE, NO_GRAPH_OF_EAGER, Times, Timing, VariantFailure
from passbench.timing import cores
from passbench.timing.device_clock import GRAPH, DeviceClock, Uncapturable
from passbench.timing.exchanges import PairExchanges
from passbench.timing.statistics import LEAST_US, Exchange, Pairs, planned, summarise
from passbench.timing.stopwatch import check_bandwidth
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_pair import SEALED, WorkerPair

_FIRST_BATCH = 10
_LEAST_ROUNDS = 3
_REPLAYS = 8
_EMPTY_AFTER = 1  # rounds of replays: not before the graph's first ones
_FEWEST_EMPTY = 3  # exchanges of no calls; where fewer had a turn, some more come in a row at the end
_LEAST_REPLAYS = 5
_SHARE = 0.5  # of `Settings.timing_budget`, for replays
_FAILURES = 2
_NOTE_LETTERS = 300


@dataclass(eq=False)
class Side:
    """Who takes part in rounds: eager, or a candidate. `exchanges` check a candidate's outputs.

    `fail` is told what goes wrong with a candidate, which then takes part no longer (`failed`). `note` says why it was
    not captured. `times`, by clock, are the exchanges of the rounds that count.
    """

    compiler: str
    worker: WorkerHandle
    layers: Layers
    exchanges: PairExchanges
    fail: Callable[[VariantFailure], None]
    failed: bool = False
    note: str = ""
    times: dict[str, list[Exchange]] = field(default_factory=lambda: {"e2e": [], "device": []})


def turns_before(order: Sequence[Side], one: Side, last: Side | None) -> list[int]:
    """The places of `order` where a further turn of `one` comes before its own, and not beside another of its turns.
    `last` had the turn before all of them."""
    return [n for n, side in enumerate([last, *order][: order.index(one)]) if side != one]


@contextlib.contextmanager
def turn_to(pair: WorkerPair, side: Side, layout: BatchLayout | None = None) -> Iterator[None]:
    """Have the side be the pair's candidate, with room for a layout. What goes wrong with it is told to its `fail`; a
    failure of eager is raised."""
    pair.candidate, pair.layers = side.worker, side.layers
    if layout is not None:
        side.worker.reserve(layout.end)
    try:
        yield
    except VariantFailure as failure:
        if failure.eager:
            raise
        side.failed = True
        side.fail(failure)


class Captures:
    """Which compilers can be captured in a CUDA graph at all: each failure costs a worker with all that it keeps."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}
        self._possible: set[str] = set()

    def hopeless(self, compiler: str) -> bool:
        """Whether captures of the compiler have only failed, and that more than once."""
        return compiler not in self._possible and self._failures.get(compiler, 0) >= _FAILURES

    def note(self, compiler: str, *, captured: bool) -> None:
        """A capture was tried."""
        if captured:
            self._possible.add(compiler)
        else:
            self._failures[compiler] = self._failures.get(compiler, 0) + 1


class Rounds:
    """Times one variant under `sides`, whose outputs have been found correct. For one use."""

    def __init__(self, pair: WorkerPair, sides: Sequence[Side], captures: Captures) -> None:
        of_eager = PairExchanges(pair, lambda layout: None, lambda layout: None)
        self._eager = Side("eager", pair.eager, pair.layers, of_eager, lambda failure: None)
        self._pair, self._settings, self._captures, self._sides = pair, pair.settings, captures, list(sides)
        self._last: Side | None = None
        self._empty_us: list[float] = []

    def measure(self) -> dict[Side, Times]:
        """Times of the sides that have not failed by both clocks, "device" on a GPU alone. Raises VariantFailure where
        eager fails."""
        chosen = cores.choose(self._pair.device)
        workers = [side.worker for side in (self._eager, *self._sides)]
        pinned = cores.on_cores(chosen.parent) if chosen else contextlib.nullcontext()
        try:
            with without_collection(), pinned:
                for worker in workers if chosen else ():
                    worker.pin(chosen.children)
                size, seconds = self._warm_up()
                self._end_to_end(size, seconds)
                if self._pair.device.type == "cuda":
                    self._on_device(size, seconds)
        finally:
            for worker in workers if chosen else ():
                worker.unpin()
        found = {}
        for side in self._running():
            with turn_to(self._pair, side), self._pair.phases("statistics"):
                found[side] = self._times(side)
        return {side: found[side] for side in self._running()}

    def _running(self) -> list[Side]:
        return [side for side in self._sides if not side.failed]

    def _times(self, side: Side) -> Times:
        clocks = [clock for clock, exchanges in side.times.items() if exchanges]
        timings = tuple(self._timing(side, clock) for clock in clocks)
        check_bandwidth(self._pair, timings)
        side.layers.note("parent_clock", "late_inputs", "timed_outputs_checked")
        return Times(timings, GRAPH if "device" in clocks else None, side.note)

    def _timing(self, side: Side, clock: str) -> Timing:
        empty_us = self._empty_us if clock == "device" else []
        pairs = Pairs(self._eager.times[clock], side.times[clock], empty_us)
        return summarise(clock, pairs, self._settings.noise)

    def _round(
        self,
        layout: BatchLayout,
        sides: Sequence[Side],
        run: Callable[[Side], Exchange],
        empty: Callable[[], None] | None = None,
    ) -> dict[Side, Exchange]:
        """An exchange of eager and of each side on one layout, in any order in which nobody runs twice in succession:
        a worker would find the GPU's caches of code and addresses as it left them. All outputs are compared. `empty` is
        an exchange of eager's worker, too, and has a turn where there is one for it: before eager's own, whose outputs
        it would overwrite.
        """
        order = [self._eager, *sides]
        self._pair.rng.shuffle(order)
        if order[0] is self._last:
            order = [*order[1:], order[0]]
        places = turns_before(order, self._eager, self._last) if empty else []
        place = self._pair.rng.choice(places) if places else None
        self._last = order[-1]
        done = {}
        for number, side in enumerate(order):
            if number == place:
                empty()
            with turn_to(self._pair, side, layout):
                done[side] = run(side)
        for side in sides:
            if side in done:
                with turn_to(self._pair, side):
                    side.exchanges.compare(layout)
        return done

    def _draw(self, size: int, sealed: int = 0, *, rehearsed: bool = False) -> BatchLayout:
        """A batch of about `size` calls, drawn."""
        pair = self._pair
        return pair.draw(pair.about(size), pair.outputs, Distribution.VARIED, sealed=sealed, rehearsed=rehearsed)

    def _calls(self, size: int) -> dict[Side, Exchange]:
        """A round of calls, host included."""
        pair = self._pair
        layout = self._draw(size, sealed=SEALED, rehearsed=True)
        seed, go = pair.rng.getrandbits(32), Go(flush=self._settings.flush_l2)
        run = lambda side: side.exchanges.timed(side.worker, layout, go, seed)  # noqa: E731
        return self._round(layout, self._running(), run)

    def _warm_up(self) -> tuple[int, float]:
        """Rounds that do not count. Returns the calls in an exchange, and the seconds that a call of everyone takes.

        An exchange has as many calls as take `Settings.batch_us` on the fastest side, or more if `Settings.calls` need
        that within `Settings.pairs` rounds.
        """
        settings, most = self._settings, self._pair.most_calls()
        first = self._calls(max(2, min(_FIRST_BATCH, most)))
        calls = first[self._eager].calls
        fastest = max(min(one.host_us for one in first.values()), LEAST_US)
        seconds = sum(one.total_us for one in first.values()) / calls / 1e6
        wanted = max(settings.batch_us / fastest, settings.calls / settings.pairs * 4 / 3)
        size = max(2, min(most, math.ceil(wanted) + 1))  # the first is not timed
        while True:
            calls += self._calls(size)[self._eager].calls
            if calls >= settings.warmup or seconds * calls > settings.timing_budget:
                return size, seconds

    def _end_to_end(self, size: int, seconds: float) -> None:
        affordable = max(_LEAST_ROUNDS, math.floor(self._settings.timing_budget / (seconds * size)))
        enough = math.ceil(self._settings.calls / self._pair.fewest_timed(size))
        for _ in range(planned(self._settings.pairs, enough, affordable, 0).wanted):
            self._keep("e2e", self._calls(size))

    def _keep(self, clock: str, done: dict[Side, Exchange]) -> None:
        for side, exchange in done.items():
            side.times[clock].append(exchange)

    def _on_device(self, size: int, seconds: float) -> None:
        """Replays of one graph of each side. One that cannot be captured has none; where that is eager, nobody has."""
        clocks = {side: DeviceClock(side.exchanges) for side in (self._eager, *self._running())}
        try:
            size = self._graph_size(size, clocks)
            layout = self._draw(size)
            # Eager comes first: where it cannot be captured, no other worker is lost.
            captured = [side for side in clocks if self._captured(side, layout, clocks[side])]
        except Uncapturable as failure:
            for side in self._running():
                side.note = side.note or f"{NO_GRAPH_OF_EAGER}: {failure}"[:_NOTE_LETTERS]
            self._pair.eager.stop()
            return
        affordable = math.floor(_SHARE * self._settings.timing_budget / (seconds * size))
        for number in range(min(_REPLAYS, max(_LEAST_REPLAYS, affordable))):
            self._pair.refill(layout, Distribution.VARIED)
            seed = self._pair.rng.getrandbits(32)
            sides = [side for side in captured if side is not self._eager and not side.failed]
            replay = lambda side, seed=seed: clocks[side].timed_replay(side.worker, layout, seed)  # noqa: E731
            empty = partial(self._empty, clocks[self._eager], layout) if number >= _EMPTY_AFTER else None
            self._keep("device", self._round(layout, sides, replay, empty))
        if len(self._empty_us) < _FEWEST_EMPTY:
            self._empty_us += clocks[self._eager].empty_replays(layout)

    def _empty(self, clock: DeviceClock, layout: BatchLayout) -> None:
        self._empty_us.append(clock.empty_replay(layout))

    def _graph_size(self, size: int, clocks: dict[Side, DeviceClock]) -> int:
        """How many calls a graph should hold: what the side with the fastest calls needs, host included."""
        for side in sorted(self._running(), key=lambda side: side.times["e2e"][-1].total_us):
            if not self._captures.hopeless(side.compiler):
                with turn_to(self._pair, side):
                    try:
                        return clocks[side].graph_size(size)
                    except Uncapturable as failure:
                        if failure.worker is self._pair.eager:
                            raise
                        self._lose(side, failure)
        return size

    def _captured(self, side: Side, layout: BatchLayout, clock: DeviceClock) -> bool:
        """Whether a side's calls are captured now. Raises Uncapturable where eager's cannot be."""
        if side.note or side.failed:
            return False
        if self._captures.hopeless(side.compiler):
            side.note = f"{NO_GRAPH_OF_CANDIDATE}: captures of {side.compiler} have failed before"
            return False
        with turn_to(self._pair, side, layout):
            try:
                clock.capture(side.worker, layout)
            except Uncapturable as failure:
                if side is self._eager:
                    raise
                self._lose(side, failure)
                return False
        self._captures.note(side.compiler, captured=True)
        return True

    def _lose(self, side: Side, failure: Uncapturable) -> None:
        """A worker that cannot be captured is of no use any more."""
        side.note = f"{NO_GRAPH_OF_CANDIDATE}: {failure}"[:_NOTE_LETTERS]
        side.worker.stop()
        self._captures.note(side.compiler, captured=False)

"""Timing a variant: exchanges of eager and candidate in pairs on the same fresh inputs, by the parent's clock."""

import gc
import math
from typing import TYPE_CHECKING

from passbench.inputs.draw import Distribution
from passbench.ipc.messages import Collect, Go, Stage
from passbench.result import Timing
from passbench.timing import bandwidth, cores
from passbench.timing.statistics import LEAST_US, Exchange, Pairs, Plan, planned, summarise

if TYPE_CHECKING:
    from passbench.trial import Trial

_FIRST_BATCH = 10
_LEAST_PAIRS = 3


class Stopwatch:
    """Times the trial's variant, whose outputs have been found correct. One use."""

    def __init__(self, trial: "Trial") -> None:
        self.trial, self.settings = trial, trial.settings
        self.sides = (trial.eager, trial.candidate)
        self.cores = cores.choose(trial.eager.device)

    def measure(self) -> tuple[Timing, ...]:
        """Both clocks, "device" on a GPU alone. Raises `trial.Failed`, as every exchange does."""
        clocks = ["e2e", "device"] if self.trial.eager.device.type == "cuda" else ["e2e"]
        collecting = gc.isenabled()
        gc.disable()  # of the parent, whose clock it is; the child's is off too
        try:
            with cores.pinned(self.cores):
                self._pin()
                size, slowest = self._warm_up()
                timings = tuple(self._by_clock(clock, size, slowest) for clock in clocks)
                self._check_pinned()
        finally:
            if collecting:
                gc.enable()
        self._check_bandwidth(timings)
        return timings

    def _pin(self) -> None:
        if self.cores is not None:
            for side in self.sides:
                side.pin(self.cores.children)

    def _check_pinned(self) -> None:
        if self.cores is not None and not self.trial.candidate.pinned(self.cores.children):
            raise self.trial.refuse("affinity: the pass moved its process to another core")
        if self.cores is not None:
            for side in self.sides:
                side.unpin()

    def _check_bandwidth(self, timings: tuple[Timing, ...]) -> None:
        """Nothing that writes its outputs is faster than the memory."""
        floor = bandwidth.floor_us(self.trial.outputs, self.trial.eager.device)
        if floor is None or not self.trial.has("bandwidth"):
            return
        self.trial.on("bandwidth")
        fastest = min(t.candidate_us for t in timings)
        if fastest < floor:
            raise self.trial.refuse(f"bandwidth: {fastest:.1f} us a call; writing the outputs alone takes {floor:.1f}")

    def _warm_up(self) -> tuple[int, float]:
        """Calls in an exchange, and seconds that a call of both sides takes. The last exchange here is of full size:
        caches of memory are as warm then as they will be."""
        pairs = Pairs()
        self._pair(pairs, max(2, min(_FIRST_BATCH, self.trial.room())), "e2e")
        eager, candidate = (side[-1] for side in (pairs.eager, pairs.candidate))
        fastest = max(min(eager.host_us, candidate.host_us), LEAST_US)
        slowest = (eager.total_us + candidate.total_us) / eager.calls / 1e6
        size = max(2, min(self.trial.room(), math.ceil(self.settings.batch_us / fastest)))
        while True:
            self._pair(pairs, size, "e2e")
            if pairs.calls >= self.settings.warmup or slowest * pairs.calls > self.settings.timing_budget:
                return size, slowest

    def _by_clock(self, clock: str, size: int, slowest: float) -> Timing:
        settings, pairs = self.settings, Pairs()
        # The device's clock is the cross-check: half as many calls, and no more of them because of noise.
        e2e = clock == "e2e"
        least, calls, share = (settings.pairs, settings.calls, 1) if e2e else (_LEAST_PAIRS, settings.calls / 2, 0.2)
        affordable = max(_LEAST_PAIRS, math.floor(share * settings.timing_budget / (slowest * size)))
        plan = planned(least, math.ceil(calls / size), affordable, settings.repeats)
        plan = plan if e2e else Plan(plan.wanted, plan.wanted, plan.wanted)
        trusted = not self.trial.has("parent_clock")
        observed = self.trial.rng.randrange(plan.wanted) if e2e else None
        for done in range(1, plan.most + 1):
            self._pair(pairs, size, clock)
            if done - 1 == observed:
                self.trial.observe()
            if done >= plan.few:
                timing = summarise(clock, pairs, settings.noise, plan.repeats(done), trusted)
                if plan.will_do(timing, done, settings.precision):
                    break
        if observed is not None and observed >= done:
            self.trial.observe()
        return timing

    def _pair(self, pairs: Pairs, calls: int, clock: str) -> None:
        """One exchange of each side on the same fresh inputs, in random order; all outputs are checked afterwards."""
        trial, settings = self.trial, self.settings
        layout = trial.draw(calls, trial.outputs, Distribution.NORMAL)
        seed, timeout = trial.rng.getrandbits(32), settings.call_timeout
        stage = Stage(layout.batch, trial.outputs, seed, trial.has("output_contract"))
        go = Go(clock == "device", seed if settings.protocol == "paper" else None, settings.flush_l2)
        order = [(trial.eager, pairs.eager), (trial.candidate, pairs.candidate)]
        trial.rng.shuffle(order)
        for side, exchanges in order:
            trial.ask(side, stage, timeout)
            trial.hand_over(side, layout)  # only now: nothing can be computed ahead of the clock
            reply, nanoseconds = trial.timed(side, go, timeout)
            if trial.has("late_inputs"):
                trial.spoil_inputs(side, layout)
            trial.ask(side, Collect(), timeout)
            exchanges.append(Exchange(calls, nanoseconds / 1000, reply.host_us, reply.device_us))
        if trial.has("timed_outputs_checked"):
            trial.compare(layout, timed=True)

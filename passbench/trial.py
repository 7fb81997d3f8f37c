"""One variant under one compiler: describe, check, time. Eager and candidate run side by side on equal inputs."""

import gc
import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from passbench import layout as lay
from passbench.inputs import CORRECTNESS, Distribution
from passbench.layout import Layout
from passbench.process import WorkerDied, WorkerTimeout
from passbench.result import EAGER_FAILED, ERROR_CODES, Timing
from passbench.settings import Settings
from passbench.side import Side
from passbench.timing import LEAST_US, Round, per_call_us, summarise
from passbench.tolerance import Comparison
from passbench.wire import Code, Collect, Command, Describe, Go, Load, OutputMeta, Reply, Run, Stage, TensorAt
from storage.graph_json import to_json
from storage.records import Variant

_STATUS = {
    Code.NO_MATCH: "no_match",
    Code.COMPILE_ERROR: "compile_error",
    Code.RUNTIME_ERROR: "runtime_error",
    Code.BAD_OUTPUT: "runtime_error",
}
_CALIBRATIONS = 9  # empty exchanges whose median is taken off


class Failed(Exception):
    """The variant's verdict is in: `status` and reason. `eager`: eager itself failed, and the pass is not to blame."""

    def __init__(self, status: str, reason: str, *, eager: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.eager = status, reason, eager

    @property
    def error_code(self) -> int | None:
        return None if self.eager else ERROR_CODES.get(self.status)


@dataclass
class Outcome:
    """What a trial found out, as far as it came."""

    status: str = "ok"
    reason: str = ""
    error_code: int | None = None
    comparison: Comparison | None = None
    timings: tuple[Timing, ...] = ()
    matches: int | None = None
    layers: list[str] = field(default_factory=list)


class Trial:
    """Runs one variant. `private` is memory that no child sees: inputs are drawn there and copied to both sides."""

    def __init__(
        self,
        variant: Variant,
        eager: Side,
        candidate: Side,
        settings: Settings,
        seed: int,
        report: Callable[[str], None],
    ) -> None:
        self.variant, self.eager, self.candidate = variant, eager, candidate
        self.settings, self.seed, self.report = settings, seed, report
        self.rng = random.Random(seed)
        self.outcome = Outcome()
        self.comparison = Comparison()
        self.private = torch.empty(0, dtype=torch.uint8, device=eager.device)
        self.draws = 0
        self.compared = False
        self.outputs: tuple[OutputMeta, ...] = ()
        self.inputs_written: frozenset[int] = frozenset()  # by eager
        self.empty_ns: dict[Side, float] = {}

    def run(self, compiler: str, pass_dir: str | None) -> Outcome:
        """The whole trial; whatever goes wrong in a child ends up in the outcome."""
        outcome = self.outcome
        self.eager.start()
        self.candidate.start()
        outcome.layers += ["two_processes", "empty_environment", "resource_limits"]
        try:
            self._load(compiler, pass_dir)
            outcome.layers += ["fresh_inputs", "poisoned_outputs", "inputs_unchanged"]
            # Not for compilers: they compile again when this mode changes.
            self._check(fill=compiler in ("pass", "eager"))
            self._time()
        except Failed as failed:
            outcome.status, outcome.reason, outcome.error_code = failed.status, failed.reason, failed.error_code
            self.comparison.t_min = None
        if self.compared:
            outcome.comparison = self.comparison
        return outcome

    # Preparing

    def _load(self, compiler: str, pass_dir: str | None) -> None:
        self.report("eager")
        graph, limits = to_json(self.variant.graph), self.settings
        self._ask(self.eager, Load(graph, "eager"), limits.load_timeout)
        self._describe()
        self.report(f"{compiler}: load")
        reply = self._ask(self.candidate, Load(graph, compiler, pass_dir), limits.load_timeout)
        if compiler == "pass":
            self.outcome.matches = reply.count

    def _describe(self) -> None:
        self._fits(())
        layout = self._draw(1, (), Distribution.NORMAL)
        self._hand_over(self.eager, layout)
        reply = self._ask(self.eager, Describe(layout.calls[0], 0), self.settings.first_call_timeout)
        self.outputs = reply.outputs
        self._fits(self.outputs)

    def _fits(self, outputs: tuple[OutputMeta, ...]) -> None:
        need = lay.call_bytes(self.variant.inputs, outputs)
        if need > self.settings.arena_bytes:
            gib, limit = need / 2**30, self.settings.arena_bytes / 2**30
            reason = f"{EAGER_FAILED}: one call takes {gib:.2f} GiB; Settings.arena_bytes allows {limit:.2f}"
            raise Failed("runtime_error", reason, eager=True)

    def _draw(self, calls: int, outputs: tuple[OutputMeta, ...], how: Distribution) -> Layout:
        """Lay out a batch and draw fresh inputs in private; `_hand_over` gives them to a side."""
        layout = lay.lay_out(self.variant.inputs, outputs, calls, self.rng)
        if layout.middle > self.private.numel():
            self.private = torch.empty(layout.middle, dtype=torch.uint8, device=self.private.device)
        lay.draw(self.private, layout, self.variant.inputs, self.seed, self.draws, how)
        self.draws += calls
        for side in (self.eager, self.candidate):
            side.reserve(layout.end)
        return layout

    def _hand_over(self, side: Side, layout: Layout) -> None:
        """Put the drawn inputs and poisoned outputs into a side's arena."""
        inputs = slice(layout.start, layout.middle)
        side.memory[inputs].copy_(self.private[inputs])
        for call in layout.calls:
            lay.poison(side.memory, call.outputs)
        self._synchronize()

    def _synchronize(self) -> None:
        if self.private.device.type == "cuda":
            torch.cuda.synchronize(self.private.device)

    def _ask(self, side: Side, command: Command, timeout: float) -> Reply:
        return self._timed(side, command, timeout)[0]

    def _timed(self, side: Side, command: Command, timeout: float) -> tuple[Reply, int]:
        """An exchange; everything but OK is the variant's verdict."""
        eager = side is self.eager
        try:
            reply, nanoseconds = side.timed(command, timeout)
        except WorkerTimeout as error:
            raise _failed("timeout", str(error), eager) from None
        except WorkerDied as error:
            raise _failed("runtime_error", str(error), eager) from None
        if reply.code is not Code.OK:
            raise _failed(_STATUS[reply.code], reply.text or reply.code.name, eager)
        return reply, nanoseconds

    # Correctness

    def _check(self, *, fill: bool) -> None:
        self.report("correctness")
        for number in range(self.settings.draws):
            layout = self._draw(1, self.outputs, CORRECTNESS[number % len(CORRECTNESS)])
            timeout = self.settings.first_call_timeout if number == 0 else self.settings.call_timeout
            run = Run(layout.calls, self.outputs, self.rng.getrandbits(32), fill)
            self._hand_over(self.eager, layout)
            self._ask(self.eager, run, timeout)
            self.inputs_written |= self._written(self.eager, layout)
            self._hand_over(self.candidate, layout)
            self._ask(self.candidate, run, timeout)
            written = self._written(self.candidate, layout) - self.inputs_written
            if written:
                names = ", ".join(self.variant.inputs[i].name for i in sorted(written))
                raise Failed("wrong", f"writes over its input {names}, which eager leaves as it is")
            self._compare(layout)

    def _written(self, side: Side, layout: Layout) -> frozenset[int]:
        """Inputs of the layout's first call that the side has changed."""
        changed = set()
        for number, at in enumerate(layout.calls[0].inputs):
            if isinstance(at, TensorAt):
                now, before = (lay.elements(m, at).view(torch.uint8) for m in (side.memory, self.private))
                if not torch.equal(now, before):
                    changed.add(number)
        return frozenset(changed)

    def _compare(self, layout: Layout) -> None:
        self.compared = True
        first = self.draws - len(layout.calls)
        for number, call in enumerate(layout.calls):
            for position, slot in enumerate(call.outputs):
                if slot is None:
                    continue
                if lay.is_poison(self.candidate.memory, slot) and not lay.is_poison(self.eager.memory, slot):
                    raise Failed("runtime_error", f"output {position} was never written")
                actual, expected = (lay.view(side.memory, slot) for side in (self.candidate, self.eager))
                self.comparison.add(actual, expected, first + number, position)
        if self.comparison.new_nan:
            raise Failed("runtime_error", f"NaN where eager has none: {self.comparison.worst}")
        if self.comparison.t_min is None:
            raise Failed("wrong", f"differs from eager at every level: {self.comparison.worst}")

    # Time

    def _time(self) -> None:
        self.report("timing")
        cuda = self.private.device.type == "cuda"
        collecting = gc.isenabled()
        gc.disable()  # of the parent, whose clock it is; the child's is off too
        try:
            for side in (self.eager, self.candidate):
                self._calibrate(side)
            calls = self._warm_up()
            clocks = ["e2e", "device"] if cuda else ["e2e"]
            self.outcome.timings = tuple(self._measure(clock, calls) for clock in clocks)
        finally:
            if collecting:
                gc.enable()
        self.outcome.layers += ["parent_clock", "timed_outputs_checked"]

    def _calibrate(self, side: Side) -> None:
        ask = (self._timed(side, Go(empty=True), self.settings.call_timeout)[1] for _ in range(_CALIBRATIONS))
        self.empty_ns[side] = statistics.median(ask)

    def _warm_up(self) -> int:
        """Call without recording. Returns how many calls to time: fewer than set if the budget does not allow them."""
        left, slowest = self.settings.warmup, 0.0
        while left > 0:
            calls = min(left, self._batch_size())
            times = self._batch(calls, "e2e")
            slowest = sum(times.values()) / 1e6  # seconds for one call of either side
            left -= calls
        if slowest == 0.0:
            return self.settings.calls
        return max(1, min(self.settings.calls, math.floor(self.settings.timing_budget / slowest)))

    def _batch_size(self) -> int:
        room = self.settings.arena_bytes // max(1, lay.call_bytes(self.variant.inputs, self.outputs))
        return max(1, min(self.settings.batch, room))

    def _measure(self, clock: str, calls: int) -> Timing:
        rounds: list[Round] = []
        while len(rounds) <= self.settings.repeats:
            rounds.append(self._round(clock, calls))
            if rounds[-1].spread() <= self.settings.noise:
                break
        return summarise(clock, rounds, self.settings.noise)

    def _round(self, clock: str, calls: int) -> Round:
        result = Round()
        while result.calls < calls:
            size = min(calls - result.calls, self._batch_size())
            times = self._batch(size, clock)
            result.eager.append(times[self.eager])
            result.candidate.append(times[self.candidate])
            result.calls += size
        return result

    def _batch(self, calls: int, clock: str) -> dict[Side, float]:
        """Microseconds a call of each side on one batch of fresh inputs; all outputs are checked afterwards."""
        layout = self._draw(calls, self.outputs, Distribution.NORMAL)
        timeout, seed = self.settings.call_timeout, self.rng.getrandbits(32)
        go = Go(events=clock == "device", seed=seed if self.settings.protocol == "paper" else None)
        order = [self.eager, self.candidate]
        self.rng.shuffle(order)
        times: dict[Side, float] = {}
        for side in order:
            self._ask(side, Stage(layout.calls, self.outputs, seed), timeout)
            self._hand_over(side, layout)  # only now: nothing can be computed ahead of the clock
            reply, nanoseconds = self._timed(side, go, timeout)
            host = per_call_us(nanoseconds, self.empty_ns[side], calls)
            times[side] = max(reply.device_us, LEAST_US) if clock == "device" else host
            self._spoil_inputs(side, layout)
            self._ask(side, Collect(), timeout)
        self._compare(layout)
        return times

    def _spoil_inputs(self, side: Side, layout: Layout) -> None:
        """Overwrite the inputs before outputs are collected: work put off until then finds nothing to work on.
        Inputs whose memory eager's outputs share are left."""
        shared = {meta.aliases for meta in self.outputs}
        for call in layout.calls:
            lay.poison(side.memory, tuple(at for n, at in enumerate(call.inputs) if n not in shared))
        self._synchronize()


def _failed(status: str, reason: str, eager: bool) -> Failed:
    if eager:
        return Failed("runtime_error", f"{EAGER_FAILED}: {reason}", eager=True)
    return Failed(status, reason)

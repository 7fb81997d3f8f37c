"""One variant under one compiler: describe, check, time. Eager and candidate run side by side on equal inputs."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from passbench.checking.accuracy import errors
from passbench.checking.evidence import Observation, judge
from passbench.checking.tolerance import LEVELS, Comparison, surely_close
from passbench.contract import PassFiles
from passbench.inputs import batch_layout as lay
from passbench.inputs.batch_layout import BatchLayout
from passbench.inputs.draw import CORRECTNESS, Distribution, InputError
from passbench.ipc.messages import Block, Code, Command, Describe, Go, Load, Observe, OutputMeta, RunCalls, WorkerReply
from passbench.result import EAGER_FAILED, ERROR_CODES, Errors, Timing
from passbench.settings import Settings
from passbench.timing.stopwatch import Stopwatch
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_process import WorkerDied, WorkerTimeout
from storage.graph.as_json import to_json
from storage.records import Variant

_STATUS = {
    Code.NO_MATCH: "no_match",
    Code.COMPILE_ERROR: "compile_error",
    Code.RUNTIME_ERROR: "runtime_error",
    Code.BAD_OUTPUT: "runtime_error",
}

_OBSERVED = 6  # calls
_LEVELS_OF_CHANCE = 1
_COMPARED_ELEMENTS = 1 << 25  # at a time: in double precision they take a few GiB


class Failed(Exception):
    """The variant's verdict is in: `status` and reason. `eager`: eager itself failed, and the pass is not to blame."""

    def __init__(self, status: str, reason: str, *, eager: bool = False) -> None:
        super().__init__(reason)
        self.status, self.reason, self.eager = status, reason, eager

    @property
    def error_code(self) -> int | None:
        return None if self.eager else ERROR_CODES.get(self.status)


@dataclass
class TrialOutcome:
    """What a trial found out, as far as it came."""

    status: str = "ok"
    reason: str = ""
    error_code: int | None = None
    comparison: Comparison | None = None
    errors: Errors | None = None
    timings: tuple[Timing, ...] = ()
    matches: int | None = None
    layers: list[str] = field(default_factory=list)


class Trial:
    """Runs one variant. `private` is memory that no child sees: inputs are drawn there and copied to both sides.

    `double` runs the reference in double precision, None to do without: not eager's worker, which does nothing that
    the candidate's does not. `files`: the pass, as it was validated; None for a compiler.
    """

    def __init__(
        self,
        variant: Variant,
        eager: WorkerHandle,
        candidate: WorkerHandle,
        double: WorkerHandle | None,
        settings: Settings,
        seed: int,
        report: Callable[[str], None],
        files: PassFiles | None = None,
    ) -> None:
        self.variant, self.eager, self.candidate, self.files = variant, eager, candidate, files
        self.double = double
        self.settings, self.seed, self.report = settings, seed, report
        self.rng = random.Random(seed)
        self.outcome = TrialOutcome()
        self.comparison = Comparison()  # of the draws: so many, whatever the time takes to settle
        self.timed_comparison = Comparison()
        self.private = torch.empty(0, dtype=torch.uint8, device=eager.device)
        self.draws = 0
        self.compared = False
        self.outputs: tuple[OutputMeta, ...] = ()
        self.inputs_written: frozenset[int] = frozenset()  # by eager
        self.graph = to_json(variant.graph)
        self.compiler = ""

    def run(self, compiler: str, pass_dir: str | None) -> TrialOutcome:
        """The whole trial; whatever goes wrong in a child ends up in the outcome, and that child is replaced."""
        outcome, self.compiler = self.outcome, compiler
        self.eager.start()
        self.candidate.start()
        self.on("two_processes", "empty_environment", "resource_limits")
        try:
            self._load(compiler, pass_dir)
            self.on("output_contract", "fresh_inputs", "poisoned_outputs", "inputs_unchanged")
            # Not for compilers: they compile again when this mode changes.
            self._check(fill=compiler in ("pass", "eager"))
            self.observe()
            if self.double is not None:
                self.report("double precision")
                outcome.errors = errors(self)
            self._time()
            self._settle_level()
        except torch.OutOfMemoryError as error:  # in this process, which runs nothing of the pass
            self._end(
                Failed("runtime_error", f"{EAGER_FAILED}: no memory to compare and time it in: {error}", eager=True)
            )
        except Failed as failed:
            self._end(failed)
        if self.compared:
            outcome.comparison = self.comparison
        return outcome

    def _end(self, failed: Failed) -> None:
        """Note the verdict, and replace the worker that it is about: a failure on the GPU outlasts the call."""
        outcome = self.outcome
        outcome.status, outcome.reason, outcome.error_code = failed.status, failed.reason, failed.error_code
        self.comparison.t_min = None
        if failed.status != "no_match":
            (self.eager if failed.eager else self.candidate).stop()

    def has(self, layer: str) -> bool:
        """Whether a layer of integrity is on."""
        return layer not in self.settings.off

    def on(self, *layers: str) -> None:
        """Note the layers that are on and have done their work; each once."""
        self.outcome.layers += [x for x in layers if self.has(x) and x not in self.outcome.layers]

    # Preparing

    def _load(self, compiler: str, pass_dir: str | None) -> None:
        self.report("eager")
        self.ask(self.eager, Load(self.graph, "eager"), self.settings.load_timeout)
        self._describe()
        self.report(f"{compiler}: load")
        reply = self.ask(self.candidate, Load(self.graph, compiler, pass_dir), self.settings.load_timeout)
        if compiler == "pass":
            self.outcome.matches = reply.count

    def _describe(self) -> None:
        self._fits(())
        layout = self.draw(1, (), Distribution.NORMAL)
        self.hand_over(self.eager, layout)
        reply = self.ask(self.eager, Describe(layout.batch, 0), self.settings.first_call_timeout)
        self.outputs = reply.outputs
        self._fits(self.outputs)

    def _fits(self, outputs: tuple[OutputMeta, ...]) -> None:
        need = lay.call_bytes(self.variant.inputs, outputs)
        if need > self.settings.arena_bytes:
            gib, limit = need / 2**30, self.settings.arena_bytes / 2**30
            reason = f"{EAGER_FAILED}: one call takes {gib:.2f} GiB; Settings.arena_bytes allows {limit:.2f}"
            raise Failed("runtime_error", reason, eager=True)

    def draw(self, calls: int, outputs: tuple[OutputMeta, ...], how: Distribution) -> BatchLayout:
        """Lay out a batch and draw fresh inputs in private; `hand_over` gives them to a side."""
        fresh = self.has("fresh_inputs")
        layout = lay.lay_out(self.variant.inputs, outputs, calls, self.rng if fresh else random.Random(0))
        if layout.middle > self.private.numel():
            self.private = torch.empty(layout.middle, dtype=torch.uint8, device=self.private.device)
        try:
            lay.draw(self.private, layout, self.variant.inputs, self.seed, self.draws if fresh else 0, how)
        except InputError as error:
            raise _failed("runtime_error", str(error), eager=True) from None
        self.draws += 1
        for side in (self.eager, self.candidate, self.double):
            if side is not None:
                side.reserve(layout.end)
        return layout

    def hand_over(self, side: WorkerHandle, layout: BatchLayout) -> None:
        """Put the drawn inputs and poisoned outputs into a side's arena."""
        inputs = slice(layout.start, layout.middle)
        side.memory[inputs].copy_(self.private[inputs])
        if self.has("poisoned_outputs"):
            lay.poison(side.memory, layout.batch.outputs, layout.batch.calls)
        self._synchronize()

    def _synchronize(self) -> None:
        if self.private.device.type == "cuda":
            torch.cuda.synchronize(self.private.device)

    def ask(self, side: WorkerHandle, command: Command, timeout: float) -> WorkerReply:
        """An exchange; everything but OK is the variant's verdict."""
        return self.timed(side, command, timeout)[0]

    def timed(self, side: WorkerHandle, command: Command, timeout: float) -> tuple[WorkerReply, int]:
        """As `ask`, with the nanoseconds that it took; a `Go` is waited for without sleeping."""
        eager = side is self.eager
        try:
            reply, nanoseconds = side.timed(command, timeout, spin=isinstance(command, Go))
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
            layout = self.draw(1, self.outputs, CORRECTNESS[number % len(CORRECTNESS)])
            timeout = self.settings.first_call_timeout if number == 0 else self.settings.call_timeout
            fill = fill and self.has("poisoned_outputs")
            run = RunCalls(layout.batch, self.outputs, self.rng.getrandbits(32), fill, self.has("output_contract"))
            self.hand_over(self.eager, layout)
            self.ask(self.eager, run, timeout)
            self.inputs_written |= self._written(self.eager, layout)
            self.hand_over(self.candidate, layout)
            self.ask(self.candidate, run, timeout)
            written = self._written(self.candidate, layout) - self.inputs_written
            if written and self.has("inputs_unchanged"):
                names = ", ".join(self.variant.inputs[i].name for i in sorted(written))
                raise Failed("wrong", f"writes over its input {names}, which eager leaves as it is")
            self.compare(layout)

    def _written(self, side: WorkerHandle, layout: BatchLayout) -> frozenset[int]:
        """Inputs of the layout's only call that the side has changed."""
        blocks = [(n, x) for n, x in enumerate(layout.batch.inputs) if isinstance(x, Block)]
        return frozenset(n for n, x in blocks if not lay.same(side.memory, self.private, x, 1))

    def compare(self, layout: BatchLayout, *, timed: bool = False) -> None:
        """Compare the outputs of every call of a batch that both sides have run."""
        self.compared = True
        comparison = self.timed_comparison if timed else self.comparison
        calls = layout.batch.calls
        for position, block in enumerate(layout.batch.outputs):
            if block is None:
                continue
            theirs, ours = self.candidate.memory, self.eager.memory
            if lay.same(theirs, ours, block, calls):
                continue
            actual, expected = lay.view(theirs, block, calls), lay.view(ours, block, calls)
            rows = max(1, _COMPARED_ELEMENTS // max(1, actual[0].numel()))
            parts = list(zip(actual.split(rows), expected.split(rows), strict=True))
            if timed and all(surely_close(a, b, self._tolerated()) for a, b in parts):
                continue
            if bool((lay.poisoned(theirs, block, calls) & ~lay.poisoned(ours, block, calls)).any()):
                raise Failed("runtime_error", f"output {position} was never written")
            for a, b in parts:
                comparison.add(a, b, self.draws - 1, position)
        if comparison.new_nan:
            raise Failed("runtime_error", f"NaN where eager has none: {comparison.worst}")
        if comparison.t_min is None:
            raise Failed("wrong", f"differs from eager at every level: {comparison.worst}")

    def _tolerated(self) -> int:
        """The level up to which timed calls do not change `t_min`: the draws', and what the extremes of more numbers
        explain; how many are timed depends on noise, and must not decide."""
        return min(self.comparison.t_min + _LEVELS_OF_CHANCE, LEVELS[-1])

    def _settle_level(self) -> None:
        """`t_min` is that of the draws, unless timed calls are worse than they may be."""
        if self.timed_comparison.t_min > self._tolerated():
            self.comparison.t_min, self.comparison.worst = self.timed_comparison.t_min, self.timed_comparison.worst
            self.comparison.max_abs_error = max(self.comparison.max_abs_error, self.timed_comparison.max_abs_error)

    # What really ran, and how near the truth it came

    def observe(self) -> None:
        """Refuse a pass that does something else than launch its kernels, or not in every call alike. Asked for once
        before the timing and once at some moment in it, which the pass cannot tell from a timed one."""
        if self.compiler != "pass" or not self.has("evidence"):
            return
        layout = self.draw(min(_OBSERVED, self.room()), self.outputs, Distribution.NORMAL)
        self.hand_over(self.candidate, layout)
        observe = Observe(layout.batch, self.rng.getrandbits(32))
        reply = self.ask(self.candidate, observe, self.settings.first_call_timeout)
        try:
            reason = judge(Observation.decode(reply.observed), self.files)
        except ValueError as error:
            reason = f"evidence_forged: {error}"
        if reason:
            raise self.refuse(reason)
        self.on("evidence")

    def room(self) -> int:
        """Calls that fit into an exchange."""
        limit = min(self.settings.arena_bytes, self.settings.batch_bytes)
        return max(1, min(self.settings.batch, limit // max(1, lay.call_bytes(self.variant.inputs, self.outputs))))

    # Time

    def _time(self) -> None:
        self.report("timing")
        self.outcome.timings = Stopwatch(self).measure()
        self.on("parent_clock", "late_inputs", "timed_outputs_checked")

    def spoil_inputs(self, side: WorkerHandle, layout: BatchLayout) -> None:
        """Overwrite the inputs before outputs are collected: work put off until then finds nothing to work on.
        Inputs whose memory eager's outputs share are left."""
        shared = {meta.aliases for meta in self.outputs}
        blocks = tuple(x for n, x in enumerate(layout.batch.inputs) if n not in shared)
        lay.poison(side.memory, blocks, layout.batch.calls)
        self._synchronize()

    def refuse(self, reason: str) -> Failed:
        """The verdict on a pass that a layer of integrity has found out."""
        return Failed("rejected", reason)


def _failed(status: str, reason: str, eager: bool) -> Failed:
    if eager:
        return Failed("runtime_error", f"{EAGER_FAILED}: {reason}", eager=True)
    return Failed(status, reason)

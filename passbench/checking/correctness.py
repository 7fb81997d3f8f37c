"""Whether the candidate's outputs agree with eager's: on draws of every distribution, and in every timed call."""

from passbench.checking.tolerance import LEVELS, Comparison, surely_close
from passbench.inputs import batch_layout
from passbench.inputs.batch_layout import BatchLayout
from passbench.inputs.draw import CORRECTNESS
from passbench.ipc.messages import Block, RunCalls
from passbench.result import VariantFailure
from passbench.workers.worker_handle import WorkerHandle
from passbench.workers.worker_pair import WorkerPair

_LEVELS_OF_CHANCE = 1
_COMPARED_ELEMENTS = 1 << 25  # at a time: in double precision they take a few GiB


class Correctness:
    """Collects the agreement of one variant's outputs. `result` is None until something was compared."""

    def __init__(self, pair: WorkerPair) -> None:
        self._pair = pair
        self._drawn = Comparison()
        self._timed = Comparison()
        self._compared = False
        self._written_by_eager: frozenset[int] = frozenset()

    @property
    def result(self) -> Comparison | None:
        """The agreement so far."""
        return self._drawn if self._compared else None

    def withdraw(self) -> None:
        """The variant has failed: it agrees at no level."""
        self._drawn.t_min = None

    def check_draws(self, *, fill: bool) -> None:
        """Run both workers on `Settings.draws` sets of inputs and compare. `fill`: torch fills allocations with NaN.

        Raises VariantFailure where the candidate is wrong at every level, or writes over an input that eager leaves.
        """
        pair = self._pair
        fill = fill and pair.layers.has("poisoned_outputs")
        for number in range(pair.settings.draws):
            layout = pair.draw(1, pair.outputs, CORRECTNESS[number % len(CORRECTNESS)])
            timeout = pair.settings.first_call_timeout if number == 0 else pair.settings.call_timeout
            strict = pair.layers.has("output_contract")
            run = RunCalls(layout.batch, pair.outputs, pair.rng.getrandbits(32), fill, strict)
            pair.hand_over(pair.eager, layout)
            pair.ask(pair.eager, run, timeout)
            self._written_by_eager |= self._written(pair.eager, layout)
            pair.hand_over(pair.candidate, layout)
            pair.ask(pair.candidate, run, timeout)
            written = self._written(pair.candidate, layout) - self._written_by_eager
            if written and pair.layers.has("inputs_unchanged"):
                names = ", ".join(pair.variant.inputs[i].name for i in sorted(written))
                raise VariantFailure("wrong", f"writes over its input {names}, which eager leaves as it is")
            self._compare(layout, self._drawn)

    def compare_timed(self, layout: BatchLayout) -> None:
        """Compare the outputs of a timed batch that both workers have run. Raises VariantFailure as `check_draws`."""
        self._compare(layout, self._timed)

    def settle_level(self) -> None:
        """Report the level of the draws, unless timed calls are worse than they may be."""
        if self._timed.t_min > self._tolerated():
            self._drawn.t_min, self._drawn.worst = self._timed.t_min, self._timed.worst
            self._drawn.max_abs_error = max(self._drawn.max_abs_error, self._timed.max_abs_error)

    def _written(self, worker: WorkerHandle, layout: BatchLayout) -> frozenset[int]:
        """Inputs of the layout's only call that the worker has changed."""
        blocks = [(n, x) for n, x in enumerate(layout.batch.inputs) if isinstance(x, Block)]
        return frozenset(n for n, x in blocks if not batch_layout.same(worker.memory, self._pair.drawn, x, 1))

    def _compare(self, layout: BatchLayout, comparison: Comparison) -> None:
        """Take the outputs of every call of a batch into `comparison`."""
        self._compared = True
        calls, timed = layout.batch.calls, comparison is self._timed
        theirs, ours = self._pair.candidate.memory, self._pair.eager.memory
        for position, block in enumerate(layout.batch.outputs):
            if block is None or batch_layout.same(theirs, ours, block, calls):
                continue
            actual, expected = (batch_layout.view(memory, block, calls) for memory in (theirs, ours))
            rows = max(1, _COMPARED_ELEMENTS // max(1, actual[0].numel()))
            parts = list(zip(actual.split(rows), expected.split(rows), strict=True))
            if timed and all(surely_close(a, b, self._tolerated()) for a, b in parts):
                continue
            missing = batch_layout.poisoned(theirs, block, calls) & ~batch_layout.poisoned(ours, block, calls)
            if bool(missing.any()):
                raise VariantFailure("runtime_error", f"output {position} was never written")
            for a, b in parts:
                comparison.add(a, b, self._pair.draws - 1, position)
        if comparison.new_nan:
            raise VariantFailure("runtime_error", f"NaN where eager has none: {comparison.worst}")
        if comparison.t_min is None:
            raise VariantFailure("wrong", f"differs from eager at every level: {comparison.worst}")

    def _tolerated(self) -> int:
        """Timed calls may exceed the drawn t_min by one level before they change it, because more samples have larger
        extremes, and how many are timed depends on noise."""
        return min(self._drawn.t_min + _LEVELS_OF_CHANCE, LEVELS[-1])

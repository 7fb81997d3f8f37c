"""Whether the candidate's outputs agree with eager's: on draws of every distribution, and in every timed call."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from passbench.checking.tolerance import STRICT, Comparison, surely_close
from passbench.inputs import batch_layout
from passbench.inputs.batch_layout import BatchLayout
from passbench.inputs.distribution import CORRECTNESS
from passbench.ipc.messages import RunCalls
from passbench.result import VariantFailure
from passbench.workers.worker_pair import WorkerPair

_DRAWN_BYTES = 64 << 20  # inputs and outputs of a draw with several calls
_COMPARED_ELEMENTS = 1 << 25  # compared at a time: in double precision they take a few GiB


class EagerDraw(NamedTuple):
    """A draw that eager's worker has been called on, and the command that a candidate gets; `written` are the numbers
    of the inputs that eager wrote to."""

    layout: BatchLayout
    run: RunCalls
    timeout: float
    written: frozenset[int]


def draw_inputs(pair: WorkerPair, number: int) -> BatchLayout:
    """The inputs of one of `Settings.draws` draws: of one call in the first, of several in the others."""
    return pair.draw(1 if number == 0 else calls_a_draw(pair), pair.outputs, CORRECTNESS[number % len(CORRECTNESS)])


def run_eager(pair: WorkerPair, layout: BatchLayout, *, first: bool, fill: bool) -> EagerDraw:
    """Call eager's worker on a draw. `first`: candidates may compile on it. `fill`: allocations are filled with NaN."""
    settings, strict = pair.settings, pair.layers.has("output_contract")
    fill = fill and pair.layers.has("poisoned_outputs")
    timeout = settings.first_call_timeout if first else settings.call_timeout
    run = RunCalls(layout.batch, pair.outputs, pair.rng.getrandbits(32), fill, strict)
    pair.hand_over(pair.eager, layout)
    pair.ask(pair.eager, run, timeout)
    written = pair.changed_inputs(pair.eager, layout)
    pair.written |= written
    return EagerDraw(layout, run, timeout, written)


def calls_a_draw(pair: WorkerPair) -> int:
    """Calls of a draw: as many as `_DRAWN_BYTES` and `Settings.draw_calls` allow; more if calls are small."""
    call_bytes = max(1, batch_layout.call_bytes(pair.variant.inputs, pair.outputs))
    return max(1, min(pair.settings.draw_calls, pair.most_calls(), _DRAWN_BYTES // call_bytes))


class Correctness:
    """Collects the agreement of one variant's outputs. `result` is None until something was compared."""

    def __init__(self, pair: WorkerPair) -> None:
        self._pair = pair
        self._comparison = Comparison()
        self._compared = False
        self._drawn = False

    @property
    def result(self) -> Comparison | None:
        """The agreement so far."""
        return self._comparison if self._compared else None

    @property
    def is_loose(self) -> bool:
        """Whether outputs were compared and do not agree at `STRICT`."""
        level = self._comparison.t_min
        return self._compared and (level is None or level > STRICT)

    def withdraw(self) -> None:
        """The variant has failed: it agrees at no level."""
        self._comparison.t_min = None

    def check_draws(self, *, fill: bool) -> None:
        """Run both workers on `Settings.draws` sets of inputs and compare. `fill`: torch fills allocations with NaN.

        Raises VariantFailure where the candidate is wrong at every level, or writes over an input that eager leaves.
        """
        for number in range(self._pair.settings.draws):
            layout = draw_inputs(self._pair, number)
            self.check_draw(run_eager(self._pair, layout, first=number == 0, fill=fill))
        self.end_draws()

    def check_draw(self, drawn: EagerDraw) -> None:
        """Run the candidate's worker on a draw that eager's has run on, and compare. Raises as `check_draws`."""
        pair = self._pair
        pair.hand_over(pair.candidate, drawn.layout)
        pair.ask(pair.candidate, drawn.run, drawn.timeout)
        self.check_inputs(drawn.layout, drawn.written)
        self.compare(drawn.layout)

    def end_draws(self) -> None:
        """All draws are checked: what is compared from now on need only agree as well as these did."""
        self._drawn = True

    def of_eager(self) -> Comparison:
        """How well eager agrees with itself: in `Settings.draws` draws, each of which its worker runs twice.

        Operators that add by atomic operations, or in an order that varies, do not give the same sum twice. Raises
        VariantFailure if eager fails.
        """
        pair, comparison = self._pair, Comparison()
        for number in range(pair.settings.draws):
            layout = pair.draw(calls_a_draw(pair), pair.outputs, CORRECTNESS[number % len(CORRECTNESS)])
            run = RunCalls(layout.batch, pair.outputs, pair.rng.getrandbits(32), False, False)
            pair.hand_over(pair.eager, layout)
            pair.ask(pair.eager, run, pair.settings.first_call_timeout)
            first = pair.eager.memory[: layout.end].clone()
            pair.hand_over(pair.eager, layout)
            pair.ask(pair.eager, run, pair.settings.call_timeout)
            for position, again, before in self._differing(layout, pair.eager.memory, first):
                for a, b in _in_parts(again, before):
                    comparison.add(a, b, pair.draws - 1, position, of_calls=True)
        return comparison

    def check_inputs(self, layout: BatchLayout, written: frozenset[int] = frozenset()) -> None:
        """Refuse a candidate that writes to other inputs than eager does. Call it before outputs are collected.

        `written` are the inputs that eager has written to in this batch: the candidate must write to them. It must not
        write to any other input, nor beside one. Raises VariantFailure.
        """
        pair = self._pair
        if not pair.layers.has("inputs_unchanged"):
            return
        changed = pair.changed_inputs(pair.candidate, layout)
        if extra := changed - pair.written:
            raise VariantFailure("wrong", f"writes over its input {self._names(extra)}, which eager leaves as it is")
        if missing := written - changed:
            raise VariantFailure("wrong", f"leaves its input {self._names(missing)} as it is, which eager writes to")

    def _names(self, inputs: frozenset[int]) -> str:
        return ", ".join(self._pair.variant.inputs[i].name for i in sorted(inputs))

    def compare(self, layout: BatchLayout) -> None:
        """Compare the candidate's results with eager's in every call of a batch that both workers have run.

        Results are the outputs, and the inputs that eager writes to. Calls of draws and timed calls count alike. Raises
        VariantFailure as `check_draws`.
        """
        self._compared = True
        comparison = self._comparison
        theirs, ours = self._pair.candidate.memory, self._pair.eager.memory
        for position, actual, expected in self._differing(layout, theirs, ours):
            parts = _in_parts(actual, expected)
            level = comparison.level_of(position)
            if self._drawn and level is not None and all(surely_close(a, b, level) for a, b in parts):
                continue  # they agree at the output's level, so it stays what it is
            if position >= 0:
                block = layout.batch.outputs[position]
                if bool((batch_layout.poisoned(theirs, block) & ~batch_layout.poisoned(ours, block)).any()):
                    raise VariantFailure("runtime_error", f"output {position} was never written")
            for a, b in parts:
                comparison.add(a, b, self._pair.draws - 1, position, of_calls=True)
        if comparison.new_nan:
            raise VariantFailure("runtime_error", f"NaN where eager has none: {comparison.worst}")
        if comparison.t_min is None:
            raise VariantFailure("wrong", f"differs from eager at every level: {comparison.worst}")

    def _differing(
        self, layout: BatchLayout, *memories: torch.Tensor
    ) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
        """Results whose bits differ in two memories: the number of the output, and its values of all calls in each.

        An input n that eager writes to has the number -1 - n.
        """
        batch = layout.batch
        for position, block in enumerate(batch.outputs):
            if block is not None and not batch_layout.same(*memories, block):
                yield position, *(batch_layout.view(memory, block) for memory in memories)
        for number in self._pair.written:
            block = batch.inputs[number]
            if not batch_layout.same(*memories, block):
                rows = [[batch_layout.at(memory, block, place) for place in batch.order] for memory in memories]
                yield -1 - number, *(torch.stack(tensors) for tensors in rows)


def _in_parts(actual: torch.Tensor, expected: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The values of all calls, cut into pairs of at most `_COMPARED_ELEMENTS` elements, of one call at least."""
    rows = max(1, _COMPARED_ELEMENTS // max(1, actual[0].numel()))
    return list(zip(actual.split(rows), expected.split(rows), strict=True))

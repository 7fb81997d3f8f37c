"""A pass beside eager in this process: whether it is right, and about how fast.

PassBench gives a pass processes of its own and believes nothing that they say. That takes a second or more. An author
that searches among passes of its own writing asks here, in hundredths of a second, and PassBench judges what it hands
in. A measurement disturbs no other: the GPU is used in turns, but for the first call of a pass, which compiles.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from agent.ahead.beyond import chance_beyond
from agent.ahead.device_levels import Outputs, agree, largest_share
from agent.ahead.eager_reference import TIMED, Caller, EagerReference, EagerReferences, input_bytes, same_memory
from agent.ahead.gpu_memory import WAITS, free_cached, lacks_memory, not_measured, with_memory
from agent.ahead.graph_times import GraphTimer
from agent.ahead.output_levels import Level, beside_eager, levels_of, worst
from agent.ahead.own_inputs import copied
from agent.ahead.side_times import Call, Row, side_times
from agent.author import SeenInDraws
from passbench.checking.tolerance import LEVELS, STRICT
from passbench.child.outputs import BadOutput, check, check_memory
from passbench.contract import PACKAGE, PassRule, loaded_rules, read_pass_dir
from passbench.launch.capture import captured
from passbench.launch.plan_table import PlanTable
from passbench.matching.rewrite import apply_pass
from passbench.result import Times, VariantFailure, VariantResult, device_name
from storage.graph.as_fx import to_module
from storage.records import Sample, Variant

_FURTHER_BYTES = 2 << 30
"""What the inputs of further draws may take, one after another."""
_FIRST_FURTHER = 1000
"""The number of the first of them; earlier draws have lower ones."""
_FIRST_OF_CHECK = 10**6
"""The number of the first batch of draws of `QuickMeasure.check`."""
_HOPELESS = 0.5
"""Where it is more likely than this that PassBench finds a pass wrong, no more draws are made."""
_TURN = 0.05
"""Seconds of such draws after which others may have a turn."""
_TOGETHER, _TOGETHER_BYTES = 256, 1 << 24
"""So many of them at most are drawn together, and compared before the host looks; fewer where inputs and outputs are
large. What is compared in double precision takes up to some twenty times as much."""
_FEW, _GROWTH = 8, 8
"""The first batches have so few draws, so that few are of all distributions, too; then one in so many of all before."""
_MOST_LOST = 10.0
"""Seconds that a sample may wait in all where the GPU has no memory left. After them nothing is waited for."""
_MOST_CACHED = 512 << 20
"""What torch may keep, behind a measurement, of memory that nothing uses: others share the GPU."""
_REPEATS = 2
"""Calls of eager for each draw that tell how far it agrees with itself: atomic additions come in any order."""

Found = TypeVar("Found")


class QuickMeasure:
    """`measure(sample, pass_dir)` gives a result per variant, with as much in it as a search asks for: status, reason,
    `t_min`, and times by both clocks (by "e2e" alone on a CPU). Where eager called twice is not right at t = -5, an
    output counts as equal in `t_min` that is as near to eager as eager is, and further draws compare the others.
    `t_min_eager` says at which level eager agrees with itself, where that was asked: a call was not right at t = -5.
    The reason names the modules that had no plan for the variant's tensors (`passbench.launch.plan_for`).
    Where the GPU has no memory left, a variant is measured again a little later, and says so in its reason if it has
    none then (`gpu_memory.not_measured`).

    `turn` is a context in which nothing else uses the GPU. `untimed` is one in which others may, but take no times:
    where it is given, outputs are compared in it, and a turn is for times alone. Without `timed` there are no times. A
    variant has `draws` draws at most. A pass that rounds otherwise than eager in them, or that the caller calls
    `doubtful`, has up to `further` ones on top: such passes were wrong in one draw of a hundred. Raises what CUDA
    raises where the process is of no use after that, and ContractError on what is no pass.
    """

    waited: float = 0.0
    """Seconds that measuring has waited so far, for turns and for memory of the GPU."""

    def __init__(
        self,
        device: torch.device,
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
        timed: bool = True,
        draws: int = 24,
        further: int = 0,
        untimed: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        self.device, self.timed, self.further = device, timed, further
        self.turn = partial(self._when_it_is, turn)
        self.untimed = None if untimed is None else partial(self._when_it_is, untimed)
        self._sample = ""
        self._caller = Caller(device, seed=0)
        self._references = EagerReferences(self._caller, draws, lambda: (self.untimed or self.turn)())
        self._measured_before: set[str] = set()
        self._lost = 0.0  # seconds, for lack of memory

    def __call__(self, sample: Sample, pass_dir: Path, doubtful: bool = False) -> list[VariantResult]:
        """A result per variant, in order."""
        self.turn_to(sample)
        results = []
        captured.forget()  # what other passes have recorded
        files = read_pass_dir(pass_dir)
        source = repr(files.files)
        again = source in self._measured_before
        self._measured_before.add(source)
        with torch.no_grad(), loaded_rules(pass_dir, files.names) as rules:
            for variant in sample.variants:
                status, reason, right, own, times = "ok", "", None, None, Times()
                try:
                    right, times = self._with_memory(partial(self._measured, variant, rules, again, doubtful))
                    status = "ok" if right is not None else "wrong"
                    own = self._own_level(variant, again)
                    reason = _without_plans()
                except VariantFailure as failure:
                    status, reason = failure.status, str(failure)
                free_cached(_MOST_CACHED)
                results.append(
                    VariantResult(
                        sample.sample,
                        sample.category,
                        variant.variant_hash,
                        "pass",
                        status,
                        reason,
                        t_min=right,
                        t_min_eager=own,
                        times=times,
                        times_meaningful=self.device.type == "cuda",
                        device=device_name(self.device),
                    )
                )
        if not again and any(map(not_measured, results)):
            self._measured_before.discard(source)
        return results

    def check(self, sample: Sample, pass_dir: Path, draws: int, seconds: float) -> list[SeenInDraws]:
        """For each variant, what up to so many draws show of a pass that runs, on top of those that it was measured on.
        The first draw that is not right at t = -5 is the last; so is one behind which one of PassBench's is likely not
        (`beyond.py`). `seconds` is how long all may take."""
        self.turn_to(sample)
        captured.forget()
        end, found = time.monotonic() + seconds, []
        with torch.no_grad(), loaded_rules(pass_dir, read_pass_dir(pass_dir).names) as rules:
            for number, variant in enumerate(sample.variants):
                share = max(end - time.monotonic(), 0.0) / (len(sample.variants) - number)
                try:
                    found.append(self._with_memory(partial(self._seen_in_draws, variant, rules, draws, share)))
                except VariantFailure as failure:
                    lacking = lacks_memory(failure)
                    found.append(SeenInDraws(LEVELS[0] if lacking else None, 0, lacked_memory=lacking))
        return found

    def turn_to(self, sample: Sample) -> None:
        """Keep nothing of another sample than this one."""
        if sample.sample != self._sample:
            self.rest()
            self._sample, self._measured_before, self._lost = sample.sample, set(), 0.0

    def rest(self) -> None:
        """Keep nothing of any sample: others need the memory."""
        self._sample = ""
        self._references.forget()
        captured.forget()
        free_cached()

    def rightness(self, variant: Variant, call: Call) -> int | None:
        """At which level a call agrees with eager in all draws; None at none. Raises VariantFailure where eager fails
        or the call writes over its inputs, what the call raises, and BadOutput on what is no output."""
        reference = self._references.of(variant)
        self._caller.called(call, reference.row(0))  # compiles
        with (self.untimed or self.turn)():
            return self._compared(call, reference)

    def fresh_rows(self, variant: Variant, calls: int) -> list[Row]:
        """Inputs of so many calls, each in memory of its own. Raises VariantFailure where eager fails."""
        rows = self._references.of(variant).rows
        return [tuple(map(copied, rows[n % min(TIMED, len(rows))])) for n in range(calls)]

    @contextmanager
    def _when_it_is(self, turn: Callable[[], AbstractContextManager[None]]) -> Iterator[None]:
        """A turn as soon as there is one."""
        begin = time.monotonic()
        with turn():
            self.waited += time.monotonic() - begin
            yield

    def _with_memory(self, attempt: Callable[[bool], Found]) -> Found:
        """What an attempt returns, made again where the GPU has no memory left. Raises VariantFailure, also where it
        has none in the end: that says nothing about the pass."""
        try:
            return with_memory(attempt, self._give_back, self._lose, WAITS if self._lost < _MOST_LOST else WAITS[:1])
        except Exception as error:
            if not lacks_memory(error):
                raise
            reason = f"not measured: {type(error).__name__}: {error}"
        raise VariantFailure("runtime_error", reason[:300], eager=True)

    def _lose(self, seconds: float) -> None:
        self._lost += seconds
        self.waited += seconds

    def _give_back(self) -> None:
        self._references.release()
        captured.forget()

    def _measured(
        self, variant: Variant, rules: list[PassRule], again: bool, doubtful: bool, last: bool
    ) -> tuple[int | None, Times]:
        """At which level the variant is right, and its times where it is. Raises VariantFailure."""
        reference = self._references.of(variant, again)
        module = to_module(variant.graph, self.device)
        with self._as_failure():
            if not apply_pass(module.graph, rules).total:
                raise VariantFailure("no_match", "the pass does not match")
            module.recompile()
            self._caller.called(module.forward, reference.row(0))  # compiles
            with (self.untimed or self.turn)():
                right = self._compared(module.forward, reference)
                if right is not None and right <= STRICT and (doubtful or right > LEVELS[0]):
                    right = self._in_further_draws(variant, module.forward, reference, right)
                if right is None or not self.timed:
                    return right, Times()
                graphs = self._graphs(reference, module.forward, last)
                if self.untimed is None:
                    return right, self._times(reference, module.forward, graphs)
            with self.turn():
                return right, self._times(reference, module.forward, graphs)

    @contextmanager
    def _as_failure(self) -> Iterator[None]:
        """What a pass raises becomes a VariantFailure, as long as the GPU still works."""
        try:
            yield
        except VariantFailure:
            raise
        except Exception as error:  # a pass may raise anything
            if lacks_memory(error):
                raise
            self._caller.synchronize()  # raises where the GPU works no more
            reason = str(error) if isinstance(error, BadOutput) else f"{type(error).__name__}: {error}"
            raise VariantFailure("runtime_error", reason[:300]) from error

    def _compared(self, call: Call, reference: EagerReference) -> int | None:
        """The level at which all draws agree, but for what eager does not repeat; None if one does not at any."""
        found = []
        for draw, expected in enumerate(reference.expected):
            found.append(self._levels(call, reference, reference.row(draw), expected))
            if worst(found[-1]) is None:
                return None
        for number, (given, left) in enumerate(zip(reference.rows[0], reference.left, strict=True)):
            if number not in reference.written and isinstance(given, torch.Tensor) and not same_memory(given, left):
                self._references.forget()  # the draws are not what they were
                raise VariantFailure("wrong", f"writes over input {number}, which eager leaves as it is")
        levels = [worst(draws) for draws in zip(*found, strict=True)]
        if max(levels, default=STRICT) > STRICT:
            levels = beside_eager(levels, self._own_levels(reference))
        return worst(levels)

    def _levels(self, call: Call, reference: EagerReference, row: Row, expected: list[Any]) -> list[Level]:
        """The level at which each output of a call agrees with what eager returns and leaves for the same inputs."""
        pairs = self._beside_eager(self._caller.called(call, row), reference, row, expected)
        return levels_of([a for a, _ in pairs], [b for _, b in pairs])

    def _beside_eager(
        self, outputs: list[Any], reference: EagerReference, row: Row, expected: list[Any]
    ) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Each tensor that a call has returned, or left of its inputs, with eager's. Raises BadOutput."""
        check(outputs, row, reference.metas, strict=True)
        check_memory(outputs, reference.metas, self.device)
        found = [*outputs, *(row[n] for n in reference.written)]
        return [(a, b) for a, b in zip(found, expected, strict=True) if isinstance(b, torch.Tensor)]

    def _own_level(self, variant: Variant, again: bool) -> Level:
        """The level at which eager agrees with itself; None where that was not asked."""
        own = self._references.of(variant, again).own
        return worst(own) if own else None

    def _own_levels(self, reference: EagerReference) -> list[Level]:
        """The level at which each output of eager agrees with itself in all draws; None at none."""
        if not reference.own:
            found = [
                self._levels(reference.call, reference, reference.row(draw), expected)
                for draw, expected in enumerate(reference.expected)
                for _ in range(_REPEATS)
            ]
            reference.own.extend(worst(draws) for draws in zip(*found, strict=True))
        return reference.own

    def _in_further_draws(self, variant: Variant, call: Call, reference: EagerReference, level: int) -> int | None:
        """The level at which all further draws agree, too; the first one that does not at t = -5 is the last."""
        for number in range(min(self.further, _FURTHER_BYTES // max(1, input_bytes(variant)))):
            found = self._in_another_draw(variant, call, reference, _FIRST_FURTHER + number)
            if found is None or found > STRICT:
                return found
            level = max(level, found)
        return level

    def _seen_in_draws(
        self, variant: Variant, rules: list[PassRule], draws: int, seconds: float, last: bool
    ) -> SeenInDraws:
        """What draws show that no measurement has had, for so many seconds. Raises VariantFailure where the pass
        raises."""
        end = time.monotonic() + seconds
        reference, module = self._references.of(variant), to_module(variant.graph, self.device)
        with self._as_failure():
            apply_pass(module.graph, rules)
            module.recompile()
            self._caller.called(module.forward, reference.row(0))  # compiles
        call, level, shares, number = module.forward, LEVELS[0], [], _FIRST_OF_CHECK
        together = max(1, min(_TOGETHER, _TOGETHER_BYTES // max(1, reference.bytes // len(reference.rows))))
        while time.monotonic() < end and _more(shares, draws):
            with (self.untimed or self.turn)():
                turn = min(time.monotonic() + _TURN, end)
                while (not shares or time.monotonic() < turn) and _more(shares, draws):
                    count = min(together, max(_FEW, len(shares) // _GROWTH), draws - len(shares))
                    with self._as_failure():
                        outcomes = self._agreeing(variant, call, reference, number, count, level)
                    number += 1
                    for pairs, (as_before, right, share) in outcomes:
                        shares.append(share)
                        if as_before:
                            continue
                        # Seldom: what is worse than all before is compared once more, level by level.
                        found = worst(levels_of(*pairs))
                        if not right or found is None or found > STRICT:
                            return SeenInDraws(found if found is None else max(found, STRICT + 1), len(shares))
                        level = max(level, found)
        return SeenInDraws(level, len(shares), () if any(map(math.isnan, shares)) else tuple(shares))

    def _in_another_draw(self, variant: Variant, call: Call, reference: EagerReference, number: int) -> int | None:
        """The level at which a call agrees with eager on the draw of this number, whose distribution goes by it, in
        the outputs that eager repeats."""
        row, expected = self._references.drawn(variant, reference, number)
        return worst(reference.repeated(self._levels(call, reference, row, expected)))

    def _agreeing(
        self, variant: Variant, call: Call, reference: EagerReference, number: int, count: int, level: int
    ) -> list[tuple[tuple[Outputs, Outputs], list[float]]]:
        """Of each of so many draws, the batch of this number: the outputs of a call and eager's; whether they agree at
        this level, and at t = -5, as numbers, and the largest share of what is allowed then. They are compared on the
        device, and the host waits for all of them together."""
        both = []
        for row, expected in self._references.drawn_together(variant, reference, number, count):
            pairs = reference.repeated(self._beside_eager(self._caller.issued(call, row), reference, row, expected))
            both.append(([a for a, _ in pairs], [b for _, b in pairs]))
        actual, expected = [a for a, _ in both], [b for _, b in both]
        told = torch.hstack(
            [agree(actual, expected, (level, STRICT)).double(), largest_share(actual, expected)[:, None]]
        )
        return list(zip(both, told.tolist(), strict=True))

    def _graphs(self, reference: EagerReference, candidate: Call, last: bool) -> dict[str, GraphTimer]:
        """Calls of both sides in CUDA graphs; none where those of one cannot be captured, or write to their inputs, or
        in the `last` attempt the GPU has no memory for eager's."""
        if self.device.type != "cuda" or reference.written:
            return {}
        return reference.graphs.of(reference.call, candidate, reference.timed_rows, last)

    def _times(self, reference: EagerReference, candidate: Call, graphs: dict[str, GraphTimer]) -> Times:
        sides = {"eager": reference.call, "candidate": candidate}
        for call in sides.values():
            self._caller.called(call, reference.row(0))
        return side_times(sides, reference.timed_rows, self.device, reference.took, graphs)


def _more(shares: list[float], draws: int) -> bool:
    """Whether there should be so many draws, more than these, and PassBench is not likely to find the pass wrong."""
    return len(shares) < draws and (chance_beyond(shares) or 0.0) <= _HOPELESS


def _without_plans() -> str:
    """Which modules of the pass at hand made library calls, since they have plans but none for their last call."""
    modules = [(name, vars(module)) for name, module in sys.modules.items() if name.startswith(f"{PACKAGE}.")]
    missed = [n for n, of in modules if any(isinstance(v, PlanTable) and v.missed for v in of.values())]
    return f"no plan for these tensors: {', '.join(sorted(missed))}" if missed else ""

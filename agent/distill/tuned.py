"""The offline author where there is a GPU: of the passes that `agent.distill.static` could write, the measured best.

The search starts from the pass that is expected to be best. A step changes one thing: a region more or less, other
block sizes or warps, sizes as arguments, the kernels that TorchInductor itself would make, whole graphs as
CUDA graphs (`agent.distill.whole_graphs`). PassBench measures each step on a few variants of the sample, until the time
is up. A pass that is wrong, or not clearly faster than eager, is not submitted.

A pass may be wrong at t = −5 because a kernel rounds otherwise than eager does. The search then starts again without
the ops that do so (`agent.distill.rounding`), in the variants that are wrong and in those that a pattern cannot tell
from them. A pass that is right and rounds otherwise may be wrong on other inputs: what it is `expected` to gain is
compared with what passes gain that add in eager's order or make eager's calls, and with nothing at all. A kernel adds
in eager's order only after that order was confirmed on the device (`agent.distill.eager.order_probe`).

What a search finds is kept by family and device (`agent.distill.found_families`). A killed search goes on from its best
so far. A family is searched once, in this run or an earlier one.
"""

import functools
import math
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from agent.author import Attempt, Author, Submission
from agent.distill.eager.order_probe import ProbedOrders
from agent.distill.found_families import Best, FamilySearch, FoundFamilies, Levels, SearchChoice
from agent.distill.hill_climb import Search
from agent.distill.kernels.launch_configs import choose
from agent.distill.rounding import Confirms, Rounding, assumed
from agent.distill.static import Distill
from agent.distill.task_plan import FloatDtypes, Task, float_dtypes
from agent.distill.whole_graphs import WORTH
from passbench.result import VariantResult
from storage.graph.as_json import to_json
from storage.records import Sample, Variant

LEVEL = -5
"""The tolerance level at which a pass must be right in every measured variant."""

EQUAL = -10
"""The level at which a pass gives eager's bits, or nearly so."""

RISKS = {LEVEL: 0.25, EQUAL: 0.0}
"""How likely a pass that is right at a level in the author's draws is wrong at `LEVEL` in PassBench's. Of 33 that were
right at `LEVEL` and not one level further 8 were wrong (`benchmarks/agent/h200_distill_350`)."""

RISK = 0.05
"""The same at the levels between."""

WRONG = 0.1
"""What counts in place of a speedup where a pass is wrong, as in PassBench's aggregate score."""

LONG = 3.0
"""Microseconds. A kernel that takes less hides behind the host, so its blocks and warps are not worth a search."""

DEVICE_WEIGHT = 0.25
"""How much the device's clock counts in a search, beside the end-to-end clock."""

_STAGES = 3
"""How many steps of a sweep are loaded at once in the passes that try this."""


@dataclass(frozen=True)
class SearchTrial:
    """Measures choices of patterns and style for one task, on some of the sample's variants.

    `levels` is what the task leaves to eager. `start` is the choice that is expected to be best. `dtypes_of` has the
    floating dtypes of the variants of each graph of the sample. `known` has results by source: choices that come down
    to the same source are measured once. `own_schedule` gives the task with the kernels that TorchInductor makes.
    """

    task: Task
    levels: Levels
    start: SearchChoice
    variants: Sample
    attempt: Attempt
    dtypes_of: Mapping[str, FloatDtypes]
    own_schedule: Callable[[], Task]
    known: dict[str, Sequence[VariantResult]] = field(default_factory=dict)

    def score(self, choice: SearchChoice) -> float | None:
        """The speedup; None where a variant failed, is wrong, or has no pass."""
        return speedup(self._results(choice))

    def wrong(self, choice: SearchChoice) -> set[FloatDtypes]:
        """The dtypes of graphs with a variant that failed or is wrong; none if all measured variants are right.

        If some are, the dtypes of which no variant was measured are added. Without any result: all dtypes.
        """
        results, everything = self._results(choice), set(self.dtypes_of.values())
        if len(results) != len(self.variants.variants):
            return everything
        measured = [self.dtypes_of[to_json(variant.graph)] for variant in self.variants.variants]
        wrong = {dtypes for dtypes, result in zip(measured, results, strict=True) if not is_right(result)}
        return wrong | (everything - set(measured)) if wrong else wrong

    def rightness(self, choice: SearchChoice) -> dict[FloatDtypes, int]:
        """The level at which all measured variants of each dtypes are right; only for a choice that is right."""
        found: dict[FloatDtypes, int] = {}
        for variant, result in zip(self.variants.variants, self._results(choice), strict=True):
            dtypes = self.dtypes_of[to_json(variant.graph)]
            found[dtypes] = max(result.t_min, found.get(dtypes, EQUAL))
        return found

    def _in_words(self, choice: SearchChoice) -> str:
        rounding = ", ".join(sorted({level.name.lower() for level in self.levels.values()}))
        return f"{len(choice.patterns)} patterns, {choice.style}, rounding {rounding}"

    def _results(self, choice: SearchChoice) -> Sequence[VariantResult]:
        with tempfile.TemporaryDirectory(prefix="passnet-") as scratch:
            directory = Path(scratch) / "pass"
            source = self._write(choice, directory)
            if source is None:
                return ()
            if source not in self.known:
                self.known[source] = self.attempt.measure(self.variants, directory)
                self.attempt.say(f"{self._in_words(choice)}: {_answer(self.known[source])}")
        return self.known[source]

    def _write(self, choice: SearchChoice, directory: Path) -> str | None:
        """Writes the pass of a choice; returns its source, None if there is no such pass."""
        task = self.own_schedule() if choice.style.own_schedule else self.task
        if task.write(_known(task, choice), choice.style, directory).pass_dir is None:
            return None
        return "".join(file.read_text("utf-8") for file in sorted(directory.glob("*.*")))


@dataclass
class Tuned(Author):
    """Searches for the best pass of each sample by measuring.

    `seconds` is how long measuring one sample may take, `probes` how many of its variants are measured. `reach`: a
    region that is expected to cost up to so many microseconds a call is still tried. `found` has the answers by family.
    `orders` makes the function that confirms orders of addition on a device; `probed` keeps its answers.
    """

    distill: Distill = field(default_factory=Distill)
    name: str = "distill"
    seconds: float = 60.0
    probes: int = 6
    reach: float = 15.0
    found: dict[str, Best | None] = field(default_factory=dict)
    orders: Callable[..., Confirms] = ProbedOrders
    probed: dict[str, bool] = field(default_factory=dict)
    measures: ClassVar[bool] = True

    @property
    def identity(self) -> Mapping[str, Any]:
        """What decides how attempts go; there is no model."""
        return {"model": "", "seconds": self.seconds, "probes": self.probes, "reach": self.reach}

    def begin(self, saved: Iterable[Mapping[str, Any]]) -> None:
        """Start a run. The saved trajectories are not needed: searches that were killed are in `attempt.state`."""
        self.found.clear()

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """The best pass found. Without a GPU: what `distill` writes without measuring."""
        if not attempt.device.startswith("cuda"):
            return self.distill.write(sample, directory)
        task = self._task(sample)
        start = self._start(task)
        if not _writes(task, start):
            return task.write((), start.style, directory)
        if sample.family_hash not in self.found:
            self.found[sample.family_hash] = self._searched(task, sample, attempt)
        best = self.found[sample.family_hash]
        if best is None:
            return Submission("eager", reason="no pass that was measured is right and faster than eager")
        own_schedule = best.choice.style.own_schedule
        if own_schedule or any(best.levels.values()):
            task = self._task(sample, best.levels, self._confirms(attempt), own_schedule)
        return task.write(_known(task, best.choice), best.choice.style, directory)

    def _searched(self, task: Task, sample: Sample, attempt: Attempt) -> Best | None:
        """The family's best, by an earlier search if that was finished. A killed search goes on from its best."""
        kept = attempt.state / "families" if attempt.state is not None else None
        families = FoundFamilies(kept, attempt.device, self.identity)
        earlier = families.load(sample.family_hash)
        if earlier is not None and earlier.finished:
            attempt.say("this family was searched before")
            return earlier.best
        begin, used = time.monotonic(), earlier.seconds if earlier is not None else 0.0

        def keep(best: Best | None, finished: bool = False) -> None:
            seconds = used + time.monotonic() - begin
            families.keep(sample.family_hash, FamilySearch(best, seconds, finished))

        start = earlier.best if earlier is not None else None
        best = self._best(task, sample, attempt, start, begin + max(self.seconds - used, 0.0), keep)
        keep(best, finished=True)
        return best

    def _best(
        self,
        task: Task,
        sample: Sample,
        attempt: Attempt,
        earlier: Best | None,
        end: float,
        keep: Callable[[Best], None],
    ) -> Best | None:
        """The best pass of two searches.

        The first is around a start that is right, if leaving more to eager leads to one. The second leaves nothing to
        eager: a part of such a pass may be right. Before both, where many launches are left, eager's calls as one CUDA
        graph are measured: whatever else is wrong, they are not. If they are faster, both searches start from CUDA
        graphs. `earlier`, the best of a killed search, is where this one starts. `end` is a time of `time.monotonic`.
        `keep` is given each best so far.
        """
        graphs = float_dtypes(sample.variants)
        probed, more = (replace(sample, variants=spread(sample.variants, n)) for n in (self.probes, 2 * self.probes))
        levels = dict.fromkeys(graphs.values(), Rounding.ANY)
        confirms = self._confirms(attempt)

        def own_schedule(levels: Levels) -> Callable[[], Task]:
            return functools.cache(partial(self._task, sample, levels, confirms, own_schedule=True, end=end))

        trial = whole = SearchTrial(task, levels, self._start(task), probed, attempt, graphs, own_schedule(levels))
        best, value = None, 1.0
        calls = SearchChoice((), replace(self.distill.style, captured=True))
        few = task.launches(whole.start.patterns) < WORTH
        if earlier is None and not few and whole.start != calls and _writes(task, calls):
            found = trial.score(calls) or 0.0
            all_measured = len(probed.variants) == len(sample.variants)
            if found >= Search.worth and (all_measured or not replace(trial, variants=more, known={}).wrong(calls)):
                best, value = Best(calls, levels), found
                keep(best)
                trial = whole = replace(whole, start=self._start(task, captured=True))

        def search_around(trial: SearchTrial) -> set[FloatDtypes]:
            """Searches around the trial's start, and checks what it finds on more variants.

            If that is right there, and better than all before, it becomes the best. Returns the dtypes that are wrong
            there.
            """

            def improved(choice: SearchChoice) -> None:
                if (search.measured[choice] or 0.0) > value:
                    keep(Best(choice, trial.levels))

            search = Search(trial.score, partial(steps, trial.task), end - time.monotonic(), improved=improved)
            choice = search.run(trial.start, *alternatives(trial.task, trial.start))
            if choice is None or (search.measured[choice] or 0.0) <= value:
                return set()
            again = replace(trial, variants=more, known={})
            wrong = again.wrong(choice)
            if not wrong and (again.score(choice) or 0.0) >= 1.0:
                right = _rightness(trial, again, choice)
                consider(choice, trial.levels, search.measured[choice], right)
                try_safer(trial, choice, right)
            return wrong

        def consider(choice: SearchChoice, levels: Levels, score: float, right: Mapping[FloatDtypes, int]) -> None:
            """Makes the choice the best if it is expected to be."""
            nonlocal best, value
            worth = expected(score, max(right.values()))
            if worth > value:
                best, value = Best(choice, levels), worth
                keep(best)

        def try_safer(trial: SearchTrial, choice: SearchChoice, right: Mapping[FloatDtypes, int]) -> None:
            """Considers passes with eager's bits in the dtypes in which the choice is not right at `EQUAL`: of the same
            regions, and of the regions that are likely then."""
            inexact = {dtypes for dtypes, level in right.items() if level > EQUAL}
            levels = {d: max(level, Rounding.EXACT) if d in inexact else level for d, level in trial.levels.items()}
            if levels == trial.levels:
                return
            task = self._task(sample, levels, confirms)
            exact = replace(trial, task=task, levels=levels, own_schedule=own_schedule(levels))
            same = replace(choice, patterns=_known(task, choice))
            tried = dict.fromkeys((same, *in_other_order(task, same), self._start(task, captured)))
            scores = {safer: exact.score(safer) or 0.0 for safer in tried if _writes(task, safer)}
            for safer, score in sorted(scores.items(), key=lambda item: -item[1]):
                if score <= value:
                    return
                again = replace(exact, variants=more, known={})
                if not again.wrong(safer) and (again.score(safer) or 0.0) >= 1.0:
                    consider(safer, levels, score, _rightness(exact, again, safer))
                    return

        captured = best is not None
        if earlier is not None:
            levels = levels | {dtypes: level for dtypes, level in earlier.levels.items() if dtypes in levels}
            if any(levels.values()):
                task = self._task(sample, levels, confirms)
            choice = replace(earlier.choice, patterns=_known(task, earlier.choice))
            start = choice if _writes(task, choice) else self._start(task)
            trial = replace(trial, task=task, levels=levels, start=start, own_schedule=own_schedule(levels))
        while _writes(trial.task, trial.start) and (best is None or time.monotonic() < end):
            wrong = trial.wrong(trial.start) or search_around(trial)
            if not wrong or time.monotonic() >= end:
                break
            levels = {d: _stricter(level) if d in wrong else level for d, level in trial.levels.items()}
            if levels == trial.levels:
                search_around(trial)  # parts of it may be right
                break
            task = self._task(sample, levels, confirms)
            start = self._start(task, captured)
            trial = replace(trial, task=task, levels=levels, start=start, own_schedule=own_schedule(levels))
        if trial is not whole and (best is None or time.monotonic() < end):
            search_around(whole)
        return best

    def _confirms(self, attempt: Attempt) -> Confirms:
        kept = attempt.state / "sum_orders" if attempt.state is not None else None
        return self.orders(attempt.device, attempt.say, kept, self.probed)

    def _task(
        self,
        sample: Sample,
        levels: Mapping[FloatDtypes, Rounding] | None = None,
        confirms: Confirms = assumed,
        own_schedule: bool = False,
        end: float = math.inf,
    ) -> Task:
        """The sample's task; regions are not looked for after `end`, a time of `time.monotonic`."""
        distill = replace(self.distill, seconds=min(self.distill.seconds, max(0.0, end - time.monotonic())))
        return distill.task(sample, -self.reach, levels, confirms, whole=True, own_schedule=own_schedule, biases=True)

    def _start(self, task: Task, captured: bool = False) -> SearchChoice:
        """The choice that is expected to be best: whole graphs if they are to be `captured`, or have no regions."""
        patterns = task.likely(self.distill.margin) or task.likely(-math.inf)
        captured = task.any_whole and (captured or not patterns)
        style = replace(self.distill.style, captured=captured) if captured else self.distill.style
        return SearchChoice(tuple(sorted(patterns)), style)


def expected(score: float, level: int) -> float:
    """What a pass of this speed is worth that is right at this level: the mean over being right and wrong, by the
    logarithm."""
    risk = RISKS.get(level, RISK)
    return score ** (1.0 - risk) * WRONG**risk


def _rightness(first: SearchTrial, second: SearchTrial, choice: SearchChoice) -> dict[FloatDtypes, int]:
    """The levels at which two measurements of a choice are right, by dtypes."""
    once, twice = first.rightness(choice), second.rightness(choice)
    return {dtypes: max(once.get(dtypes, EQUAL), twice.get(dtypes, EQUAL)) for dtypes in once.keys() | twice.keys()}


def _known(task: Task, choice: SearchChoice) -> tuple[str, ...]:
    """The choice's patterns that the task has."""
    return tuple(pattern for pattern in choice.patterns if pattern in task.gains())


def _writes(task: Task, choice: SearchChoice) -> bool:
    """Whether there is a pass of this choice."""
    return task.covers(choice.patterns, choice.style.captured)


def _stricter(level: Rounding) -> Rounding:
    return Rounding(min(level + 1, max(Rounding)))


def is_right(result: VariantResult) -> bool:
    """Whether a variant ran and is right at `LEVEL`."""
    return result.status == "ok" and result.t_min is not None and result.t_min <= LEVEL


def speedup(results: Sequence[VariantResult]) -> float | None:
    """How much faster the results are than eager; None where a variant failed or is wrong at `LEVEL`.

    It is the geometric mean of the end-to-end speedups. Where these gain, the device's count with a weight of
    `DEVICE_WEIGHT`: of two passes that the host bounds, the one with the better kernels is better. A loss on the device
    counts fully.
    """
    if not results or not all(map(is_right, results)):
        return None
    e2e, device = (_mean([result.speedup(clock) for result in results]) for clock in ("e2e", "device"))
    if e2e is None or device is None or e2e < 1.0:
        return e2e
    if device < 1.0:
        return e2e * device
    return e2e ** (1.0 - DEVICE_WEIGHT) * device**DEVICE_WEIGHT


def _mean(speedups: Sequence[float | None]) -> float | None:
    """The geometric mean; None where one of them is missing."""
    if None in speedups:
        return None
    return math.exp(math.fsum(map(math.log, speedups)) / len(speedups))


def _answer(results: Sequence[VariantResult]) -> str:
    """The speedup, or how right each variant is."""
    score = speedup(results)
    said = [str(r.t_min) if r.status == "ok" else f"{r.status} {r.reason[:160]}".rstrip() for r in results]
    return f"{score:.3f}" if score else f"no answer, {', '.join(said)}"


def spread(variants: Sequence[Variant], count: int) -> tuple[Variant, ...]:
    """At most `count` of the variants, evenly spaced from the smallest inputs to the largest."""
    ordered = sorted(variants, key=lambda v: (sum(math.prod(i.shape) for i in v.inputs), v.variant_hash))
    if len(ordered) <= count:
        return tuple(ordered)
    last = len(ordered) - 1
    return tuple(ordered[round(n * last / (count - 1))] for n in range(count)) if count > 1 else (ordered[-1],)


def alternatives(task: Task, start: SearchChoice) -> list[SearchChoice]:
    """Choices that are measured beside the start, before any other: each is the best for some tasks.

    They are one CUDA graph of all, or none where the start is one, and TorchInductor's own schedule.
    """
    style, found = start.style, []
    if style.captured and task.covers(start.patterns):
        found.append(replace(style, captured=False))
    elif not style.captured and task.launches(start.patterns) >= WORTH:
        found.append(replace(style, captured=True))
    if task.longest() >= LONG:
        found.append(replace(style, own_schedule=True))
    return [*in_other_order(task, start), *(SearchChoice(start.patterns, each) for each in found)]


def in_other_order(task: Task, choice: SearchChoice) -> list[SearchChoice]:
    """The choice with other kernels of those that add in eager's order: norms added up by lanes, or not so if they are;
    rows not kept in registers, or kept. None where that makes no difference."""
    style, limits = choice.style, choice.style.limits
    if style.own_schedule:
        return []
    others = (replace(limits, lanes=not limits.lanes), replace(limits, keeps=not limits.keeps))
    kernels = [kernel for kernel in task.kernels() if kernel.step is not None]
    found = [other for other in others if any(choose(k, other) != choose(k, limits) for k in kernels)]
    return [SearchChoice(choice.patterns, replace(style, limits=other)) for other in found]


def steps(task: Task, choice: SearchChoice) -> Iterator[SearchChoice]:
    """Choices that differ from this one in one respect. Those that usually matter most come first."""
    style, limits = choice.style, choice.style.limits
    gains = task.gains()
    if not style.captured:
        for patterns in (choice.patterns, tuple(sorted(gains))):
            if task.launches(patterns) >= WORTH:
                yield SearchChoice(patterns, replace(style, captured=True))
    for pattern in sorted(choice.patterns, key=lambda p: gains[p]):
        rest = tuple(p for p in choice.patterns if p != pattern)
        if task.covers(rest, style.captured):
            yield SearchChoice(rest, style)
    for pattern in gains:
        if pattern not in choice.patterns:
            yield SearchChoice(tuple(sorted((*choice.patterns, pattern))), style)
    if style.captured and task.covers(choice.patterns):
        yield SearchChoice(choice.patterns, replace(style, captured=False))
    if task.longest() < LONG:
        return
    yield SearchChoice(choice.patterns, replace(style, own_schedule=not style.own_schedule))
    kernels = task.kernels()
    if any(kernel.flat is not None for kernel in kernels):  # tiled for the sake of its accesses
        yield SearchChoice(choice.patterns, replace(style, limits=replace(limits, tiles=not limits.tiles)))
    for factor in (2.0, 0.5):
        yield SearchChoice(choice.patterns, replace(style, limits=replace(limits, work=limits.work * factor)))
    for factor in (2.0, 0.5):
        yield SearchChoice(choice.patterns, replace(style, limits=replace(limits, warps=limits.warps * factor)))
    yield SearchChoice(choice.patterns, replace(style, limits=replace(limits, persistent=limits.persistent // 4)))
    if any(choose(kernel, limits).loops for kernel in kernels):
        yield SearchChoice(
            choice.patterns, replace(style, limits=replace(limits, stages=_STAGES if limits.stages == 1 else 1))
        )
    yield SearchChoice(choice.patterns, replace(style, general=not style.general))

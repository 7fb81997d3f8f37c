"""Passes of one task as a search measures them."""

import math
import tempfile
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median, quantiles

from agent.ahead.beyond import chance_beyond
from agent.ahead.gpu_memory import not_measured
from agent.ahead.output_levels import counted
from agent.author import Attempt, SeenInDraws
from agent.distill.eager.op_effects import TensorLayout
from agent.distill.kernels.value_graph import HALF
from agent.distill.rewrites.sample_graphs import FloatDtypes
from agent.distill.rounding import Rounding, hides_bits
from agent.distill.search.found_families import Levels, SearchChoice
from agent.distill.search.scores import (
    EQUAL,
    LEVEL,
    UNSURE,
    WRONG_LEVEL,
    Merit,
    device_speedup,
    e2e_speedup,
    in_words,
    is_right,
    speedup,
    weighed,
)
from agent.distill.search.search_clock import SearchClock
from agent.distill.task_plan import Task
from passbench.result import VariantResult
from passbench.score import geometric_mean
from storage.graph.as_json import to_json
from storage.records import Sample, dtype_of

_DRAWS, _DRAWING = 2048, 2.0
"""In how many draws, which may take how many seconds, a pass must be right that has not eager's bits."""
_FOR_PRODUCTS = 3
"""So many times as many for one with products as sums: they have other bits, of which a half type shows few. About one
call of a thousand of `fusible-68b796c9c203` is wrong: 288 and 1,144 draws were right, and PassBench, which compares
1,212 calls of this pass, found a wrong one each of six times (`benchmarks/passbench/h100_one_tree`)."""


@dataclass(frozen=True)
class SearchTrial:
    """Measures choices of patterns and style for one task, on some of the sample's variants.

    `levels` is what the task leaves to eager. `start` is the choice that is expected to be best. `dtypes_of` has the
    floating dtypes of the variants of each graph of the sample. `known` has results by source: choices that come down
    to the same source are measured once. `own_schedule` gives the task with the kernels that TorchInductor makes,
    `joined` the one with regions joined, and `channels_last` the one with convolutions in channels-last memory; None if
    it has none. `e2e` has the end-to-end speedups of right passes by variant and what costs the host the same, in all
    trials of a sample. Others' work only adds to what the host takes, and eager has the least of all measurements: a
    pass has the upper quartile of all where its own is lower. Beside ten others (`benchmarks/passbench/h100_one_tree`)
    the quartile of what 165 searches had measured was 1.001 of PassBench's figure in the median, the median 0.949 and
    the largest 1.048.
    """

    task: Task
    levels: Levels
    start: SearchChoice
    variants: Sample
    attempt: Attempt
    dtypes_of: Mapping[str, FloatDtypes]
    clock: SearchClock
    own_schedule: Callable[[], Task]
    joined: Callable[[], Task]
    channels_last: Callable[[], Task | None]
    known: dict[str, Sequence[VariantResult]] = field(default_factory=dict)
    e2e: dict[tuple[str, Hashable], set[float]] = field(default_factory=dict)
    _found: dict[SearchChoice, Sequence[VariantResult]] = field(init=False, default_factory=dict)
    _again: dict[SearchChoice, list[Sequence[VariantResult]]] = field(init=False, default_factory=dict)
    _hosts: dict[SearchChoice, Hashable] = field(init=False, default_factory=dict)

    def merit(self, choice: SearchChoice) -> Merit:
        """How good the choice is, by all that was measured; its score is 0.0 where a variant failed, is wrong, or has
        no pass. Where its own end-to-end speedup is below the upper quartile of what costs the host the same, that was
        other work of the host, or kernels that are longer: these the device's clock tells apart. So a pass that is
        slower than eager by that clock is judged by its own measurements alone, by their median.
        """
        if choice not in self._hosts:
            self._hosts[choice] = self._host(choice)
        measured, host = self._all(choice), self._hosts[choice]
        if not measured:
            return Merit(0.0, None, host)
        device, e2e = _median(map(device_speedup, measured)), _median(map(e2e_speedup, measured))
        if e2e is None or not all(map(speedup, measured)):
            return Merit(0.0, device, host)
        if device is None or device < 1.0:
            return Merit(weighed(e2e, device), device, host)
        return Merit(weighed(max(e2e, self._undisturbed(measured, host)), device), device, host)

    def _undisturbed(self, measured: Sequence[Sequence[VariantResult]], host: Hashable) -> float:
        """The end-to-end speedup of what costs the host the same, as it is without others' work."""
        found = []
        for times in zip(*measured, strict=True):
            alike = self.e2e.setdefault((times[0].variant_hash, host), set())
            alike.update(result.speedup("e2e") for result in times)  # what two choices share counts once
            found.append(quantiles(alike, n=4, method="inclusive")[2] if len(alike) > 1 else max(alike))
        return geometric_mean(found)

    def measure_again(self, choice: SearchChoice) -> None:
        """Measure a choice that was measured once more."""
        if (results := self.on(self.variants)._results(choice)) != ():
            self._again.setdefault(choice, []).append(results)

    def is_measured(self, choice: SearchChoice) -> bool:
        """Whether there was memory to measure the choice. Else nothing is known of it."""
        return bool(self._all(choice))

    def is_slower(self, choice: SearchChoice) -> bool:
        """Whether the choice is slower than eager, and still is when it is measured once more."""
        twice = self, self.on(self.variants)
        return all(trial.is_measured(choice) and trial.merit(choice).score < 1.0 for trial in twice)

    def on(self, variants: Sample) -> "SearchTrial":
        """The same trial on other variants of the sample, of which it knows nothing yet."""
        return replace(self, variants=variants, known={})

    def confirmed(self, choice: SearchChoice, more: Sample) -> "Rightness | None":
        """How right a choice is that was right here: on `more` variants, too, and in further draws if it has not
        eager's bits. None where it is wrong there, or slower than eager, or could not be checked."""
        again = self.on(more)
        if again.wrong_again(choice) or again.is_slower(choice):
            return None
        right = rightness(self, again, choice)
        return None if right.wrong or not right.complete else right

    def is_same(self, choice: SearchChoice, other: "SearchTrial", others: SearchChoice) -> bool:
        """Whether the choice comes down to the same source as the `others`' in another trial of the same variants."""
        results = self._results(choice)
        return results != () and results is other._results(others)

    def _host(self, choice: SearchChoice) -> Hashable:
        """What the choices have in common that cost the host the same in a call."""
        style, graphs = choice.style, self.task.graphs
        if style.captured and all(each.whole is not None and not each.whole.larger for each in graphs):
            return "all in CUDA graphs"
        cases = [
            [c.cases[0] for c in g.candidates if c.pattern in choice.patterns] for g in self.written(choice).graphs
        ]
        launches = tuple(sum(case.launches for case in each) for each in cases)
        plans = self.task.compiled_kernels(style) if style.compiled else self.written(choice).one_plan(choice.patterns)
        if plans is not None and not style.captured and not style.other_regions:
            return "a plan for each graph", plans
        return choice.patterns, launches, style.captured, style.other_regions, style.general, style.compiled

    def written(self, choice: SearchChoice) -> Task:
        """The task that the choice's pass is written from."""
        if choice.style.channels_last:
            return self.channels_last() or self.task
        if choice.style.joined:
            return self.joined()
        return self.own_schedule() if choice.style.own_schedule else self.task

    def wrong(self, choice: SearchChoice) -> set[FloatDtypes]:
        """The dtypes of graphs with a variant that failed or is wrong; none if all measured variants are right.

        If some are, the dtypes of which no variant was measured are added. Without any result: all dtypes.
        """
        everything = set(self.dtypes_of.values())
        if not self.is_measured(choice):
            return everything
        measured = [self.dtypes_of[to_json(variant.graph)] for variant in self.variants.variants]
        wrong: set[FloatDtypes] = set()
        for results in self._all(choice):
            if len(results) != len(measured):
                return everything
            wrong |= {dtypes for dtypes, result in zip(measured, results, strict=True) if not is_right(result)}
        return wrong | (everything - set(measured)) if wrong else wrong

    def wrong_again(self, choice: SearchChoice) -> set[FloatDtypes]:
        """As `wrong`, of a choice that was right before: it still is where there was no memory to measure it again."""
        return self.wrong(choice) if self.is_measured(choice) else set()

    def rightness(self, choice: SearchChoice) -> dict[FloatDtypes, int]:
        """The level at which all measured variants of each dtypes are right; only for a choice that is right."""
        found: dict[FloatDtypes, int] = {}
        for results in self._all(choice):
            for variant, result in zip(self.variants.variants, results, strict=True):
                dtypes = self.dtypes_of[to_json(variant.graph)]
                found[dtypes] = max(result.t_min, found.get(dtypes, EQUAL))
        return found

    def may_have_other_bits(self, choice: SearchChoice) -> bool:
        """Whether the choice may be wrong although it gave eager's bits where it was measured: draws may hide others
        (`rounding.hides_bits`), or it is not made to have them and there was no memory to measure it here."""
        return self._hides_bits(choice) or not (self.is_measured(choice) or self._is_exact(choice))

    def _is_exact(self, choice: SearchChoice) -> bool:
        """Whether the choice is made to have eager's bits."""
        style = choice.style
        exact = not choice.patterns or min(self.levels.values(), default=Rounding.EXACT) >= Rounding.EXACT
        return exact and not (style.compiled or style.channels_last or style.split_linears or style.products)

    def _hides_bits(self, choice: SearchChoice) -> bool:
        graphs = self.task.graphs
        if choice.style.products:
            return True
        if choice.style.compiled:
            known = [layout for g in graphs if g.whole is not None for layout in g.whole.known.values]
            return any(isinstance(layout, TensorLayout) and dtype_of(layout.dtype) in HALF for layout in known)
        if min(self.levels.values(), default=Rounding.EXACT) >= Rounding.EXACT:
            return False
        chosen = [c for g in self.written(choice).graphs for c in g.candidates if c.pattern in choice.patterns]
        return any(hides_bits(case.sketch) for c in chosen for case in c.cases)

    def share_wrong(self, choices: Iterable[SearchChoice]) -> float:
        """Of the choices that ran, the share that is wrong in some variant."""
        found = [self._results(choice) for choice in choices]
        ran = [results for results in found if results and all(result.status == "ok" for result in results)]
        return sum(not all(map(is_right, results)) for results in ran) / len(ran) if ran else 0.0

    def in_more_draws(self, choice: SearchChoice) -> "Rightness":
        """How right a choice that is right is in draws that no measurement has had; none where nothing but
        `Attempt.measure` compares."""
        if self.attempt.check is None:
            return Rightness({}, 0)
        with tempfile.TemporaryDirectory(prefix="passnet-") as scratch:
            directory = Path(scratch) / "pass"
            self._write(choice, directory)
            with self.clock.measuring(self.attempt.waited):
                times = _FOR_PRODUCTS if choice.style.products else 1
                answers = self.attempt.check(self.variants, directory, _DRAWS * times, _DRAWING * times)
        found: dict[FloatDtypes, int] = {}
        for variant, one in zip(self.variants.variants, answers, strict=True):
            dtypes = self.dtypes_of[to_json(variant.graph)]
            found[dtypes] = max(WRONG_LEVEL if one.level is None else one.level, found.get(dtypes, EQUAL))
        chances = [chance_beyond(one.shares) for one in answers]
        said = ", ".join(_in_words(*both) for both in zip(answers, chances, strict=True))
        self.attempt.say(f"{self._in_words(choice)}: further draws: {said}")
        chance = None if None in chances else 1.0 - math.prod(1.0 - each for each in chances)
        complete = not any(one.lacked_memory for one in answers)
        return Rightness(found, min(one.draws for one in answers), chance=chance, complete=complete)

    def _in_words(self, choice: SearchChoice) -> str:
        rounding = ", ".join(sorted({level.name.lower() for level in self.levels.values()}))
        return f"{len(choice.patterns)} patterns, {choice.style}, rounding {rounding}"

    def _all(self, choice: SearchChoice) -> list[Sequence[VariantResult]]:
        """The results of each time that the choice was measured, but for times when there was no memory for it."""
        times = self._results(choice), *self._again.get(choice, ())
        return [results for results in times if not any(map(not_measured, results))]

    def _results(self, choice: SearchChoice) -> Sequence[VariantResult]:
        if choice not in self._found:
            self._found[choice] = self._measured(choice)
        return self._found[choice]

    def _measured(self, choice: SearchChoice) -> Sequence[VariantResult]:
        with tempfile.TemporaryDirectory(prefix="passnet-") as scratch:
            directory = Path(scratch) / "pass"
            source = self._write(choice, directory)
            if source is None:
                return ()
            if source not in self.known:
                with self.clock.measuring(self.attempt.waited):
                    found = [counted(r) for r in self.attempt.measure(self.variants, directory)]
                self.attempt.say(f"{self._in_words(choice)}: {in_words(found)}")
                if any(map(not_measured, found)):
                    return found  # another trial may have memory for it
                self.known[source] = found
        return self.known[source]

    def _write(self, choice: SearchChoice, directory: Path) -> str | None:
        """Writes the pass of a choice; returns its source, None if there is no such pass."""
        task = self.written(choice)
        if task.write(known(task, choice), choice.style, directory).pass_dir is None:
            return None
        return "".join(file.read_text("utf-8") for file in sorted(directory.glob("*.*")))


def _median(speedups: Iterable[float | None]) -> float | None:
    """The median; None where one of them is missing."""
    found = list(speedups)
    return None if None in found else median(found)


def _in_words(seen: SeenInDraws, chance: float | None) -> str:
    if seen.lacked_memory:
        return "not checked for lack of memory"
    level = "wrong" if seen.level is None else seen.level
    room = f", largest share {max(seen.shares):.2f}" if seen.shares else ""
    return f"{level} in {seen.draws}{room}" + (f", likely wrong {chance:.3f}" if chance is not None else "")


@dataclass(frozen=True)
class Rightness:
    """The `levels` at which a choice is right, by dtypes, and in how many `draws` more than each choice has. None is
    below `least`, which is `UNSURE` where the choice may have other bits than were seen. `chance` is how likely it is
    wrong in PassBench by the room that these draws left, where that is known (`agent.ahead.beyond`). It is not
    `complete` where the GPU had no memory for draws that it should be right in."""

    levels: Mapping[FloatDtypes, int]
    draws: int
    least: int = EQUAL
    chance: float | None = None
    complete: bool = True

    @property
    def wrong(self) -> set[FloatDtypes]:
        """The dtypes in which it is wrong."""
        return {dtypes for dtypes, level in self.levels.items() if level > LEVEL}

    @property
    def inexact(self) -> set[FloatDtypes]:
        """The dtypes in which it was seen to have other bits than eager, or may have them and was not checked."""
        return {dtypes for dtypes, level in self.levels.items() if level > (self.least if self.complete else EQUAL)}

    @property
    def level(self) -> int:
        """The level at which it is right in all dtypes."""
        return max(self.levels.values())


def rightness(first: SearchTrial, second: SearchTrial, choice: SearchChoice) -> Rightness:
    """How right a choice is by two measurements in which it was, and in many draws more if it has not eager's bits,
    hides that it has not, or lacked memory in the second."""
    once, twice = first.rightness(choice), second.rightness(choice)
    levels = {dtypes: max(once.get(dtypes, EQUAL), twice.get(dtypes, EQUAL)) for dtypes in once.keys() | twice.keys()}
    least = UNSURE if second.may_have_other_bits(choice) else EQUAL
    if max([least, *levels.values()]) <= EQUAL:
        return Rightness(levels, 0)
    further = second.in_more_draws(choice)
    found = {d: max(level, further.levels.get(d, least), least) for d, level in levels.items()}
    return replace(further, levels=found, least=least)


def right_together(trial: SearchTrial, end: float) -> SearchChoice | None:
    """The start with those of its patterns that are right together, if the start is wrong; None if there are none.

    Halves of what is wrong are measured, and halves of these, until `end`, a time of the trial's clock. What has
    eager's bits in itself has them beside others, too.
    """
    task, style = trial.task, trial.start.style
    whole = replace(style, captured=True) if task.any_whole else style

    def right(patterns: tuple[str, ...]) -> tuple[str, ...]:
        choice = SearchChoice(patterns, whole)
        if trial.clock() >= end or not writes(task, choice):
            return ()
        if not trial.wrong(choice):
            return patterns
        if len(patterns) == 1:
            trial.attempt.say(f"other bits than eager's: {', '.join(task.module_names(patterns).values())}")
            return ()
        return right(patterns[: len(patterns) // 2]) + right(patterns[len(patterns) // 2 :])

    patterns = trial.start.patterns
    found = right(patterns[: len(patterns) // 2]) + right(patterns[len(patterns) // 2 :]) if len(patterns) > 1 else ()
    return SearchChoice(found, whole) if 0 < len(found) < len(patterns) else None


def without_lanes(trial: SearchTrial) -> SearchChoice | None:
    """The start without norms that are added up by lanes; None if it has none."""
    style = trial.start.style
    if not style.limits.lanes:
        return None
    return replace(trial.start, style=replace(style, limits=replace(style.limits, lanes=False)))


def known(task: Task, choice: SearchChoice) -> tuple[str, ...]:
    """The choice's patterns that the task has."""
    return tuple(pattern for pattern in choice.patterns if pattern in task.gains())


def writes(task: Task, choice: SearchChoice) -> bool:
    """Whether there is a pass of this choice."""
    return task.covers(choice.patterns, choice.style.whole)

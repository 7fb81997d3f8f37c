"""The search for the best pass of one sample by measuring.

It starts from the pass that is expected to be best. A step changes one thing: a region more or less, other block sizes
or warps, sizes as arguments, the kernels that TorchInductor itself would make, whole graphs as CUDA graphs
(`agent.distill.whole_graphs`). PassBench measures each step on a few variants of the sample, until the time is up. A
pass that is wrong, or not clearly faster than eager, is never the best. An output in which eager called twice is not
right at t = −5 counts as right where the pass is as near to eager as eager is (`agent.ahead.output_levels`).

A pass may be wrong at t = −5 because a kernel rounds otherwise than eager does. The search then starts again without
the ops that do so (`agent.distill.rounding`), in the variants that are wrong and in those that a pattern cannot tell
from them. A pass that is right and rounds otherwise may be wrong on other inputs: it must be right in some hundred
draws more, and what it is `expected` to gain then is compared with what passes gain that add in eager's order or make
eager's calls, and with nothing at all. Where the first pass with eager's bits is expected to gain more than the first
one of any, the search is around that one. A kernel adds in eager's order only after that order was confirmed on the
device (`agent.distill.eager.order_probe`).

Library calls amplify a last bit: of 13 typical samples with calls 11 had kernels of any rounding that were wrong in
some draw (`benchmarks/agent/h200_distill_350`, ninth call). So where calls read what kernels make, the search begins
with eager's bits. Where these are wrong, too, some kernel has not the bits that are expected of it: those kernels that
are right together are found by halving.

What no search comes to is measured behind it (`agent.distill.last_tries`).
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace

from agent.author import Attempt
from agent.distill.last_tries import LastTries, has_small_products
from agent.distill.rewrites.sample_graphs import FloatDtypes, float_dtypes, has_channels_last, has_split_linears
from agent.distill.rounding import Rounding
from agent.distill.search.best_so_far import BestSoFar
from agent.distill.search.found_families import Best, Levels, SearchChoice
from agent.distill.search.hill_climb import Search
from agent.distill.search.last_turns import in_turns, near
from agent.distill.search.neighbours import (
    alternatives,
    by_lanes,
    in_cuda_graphs,
    in_other_order,
    in_other_regions,
    one_after_another,
    steps,
)
from agent.distill.search.probes import spread
from agent.distill.search.scores import EQUAL, ranked
from agent.distill.search.search_clock import OTHER, SearchClock
from agent.distill.search.trial import SearchTrial, known, right_together, rightness, without_lanes, writes
from agent.distill.static import SampleTasks
from agent.distill.task_plan import Task
from agent.distill.whole_graphs import WORTH

_FIRST_SHARE = 0.6
"""What a search around kernels that are right, but have not eager's bits, may take of the time that is left."""
_FEW_DRAWS = 128
"""In so many draws more such kernels are about found right: 136 in the median of 58 passes, 18 to 512
(`benchmarks/passbench/h200_table_290`)."""


@dataclass
class SampleSearch:
    """Searches one sample, whose tasks `made` makes. For one use.

    `end` is when the time is up, by `clock`; `seconds` are what a sample may take in all. `probes` variants are
    measured, and what is found is checked on up to twice as many. `so_far` keeps the best. `channels_last` and
    `compiled` are as in `agent.distill.tuned.Tuned`.
    """

    made: SampleTasks
    attempt: Attempt
    clock: SearchClock
    end: float
    so_far: BestSoFar
    probes: int
    seconds: float
    channels_last: bool
    compiled: bool
    _captured: bool = field(init=False, default=False)  # whether starts are CUDA graphs
    _doubtful: bool = field(init=False, default=False)  # whether branches may cost the device more than they save

    def __post_init__(self) -> None:
        variants = self.made.sample.variants
        parts = (spread(variants, n) for n in (self.probes, 2 * self.probes))
        self._probed, self._more = (replace(self.made.sample, variants=part) for part in parts)
        self._converts = self.channels_last and has_channels_last(variants)

    def run(self, task: Task, earlier: Best | None) -> Best | None:
        """The best pass of two searches; `task` is the sample's where nothing is left to eager.

        The first is around a start that is right, if leaving more to eager leads to one. The second leaves nothing to
        eager: a part of such a pass may be right. Before both, where many launches are left, eager's calls as one CUDA
        graph are measured: whatever else is wrong, they are not. If they are faster, both searches start from CUDA
        graphs. The first start is measured even if the time is up by then. `earlier`, the best of a search that did not
        come to its end, is where this one starts.
        """
        graphs = float_dtypes(self.made.sample.variants)
        levels = dict.fromkeys(graphs.values(), Rounding.ANY)
        if earlier is None and task.feeds_calls(self.made.start(task).patterns):
            levels = dict.fromkeys(levels, Rounding.EXACT)
            task = self.made.task(levels)
        start = self.made.start(task)
        whole = SearchTrial(
            task, levels, start, self._probed, self.attempt, graphs, self.clock, **self._other_tasks(levels)
        )
        few_launches = task.launches(start.patterns) < WORTH
        if earlier is None and not few_launches and start.patterns:
            self._take_calls(whole)
        self._captured = self.so_far.best is not None
        if self._captured:
            whole = replace(whole, start=self.made.start(task, captured=True))
        trial = whole if earlier is None else self._going_on(whole, earlier)
        trial, levels = self._search_stricter(trial, trial.levels)
        if trial is not whole and (self.so_far.best is None or self.clock() < self.end):
            self._search_around(whole)
        self._try_last(whole, levels, earlier, few_launches)
        return self.so_far.best

    def _other_tasks(self, levels: Levels) -> dict[str, Callable]:
        """What a trial at these levels has beside its task."""
        return self.made.others(levels, self._left, channels_last=self._converts)

    def _left(self) -> float:
        """Seconds until the time is up, if nothing is measured in them."""
        return (self.end - self.clock()) / OTHER

    def _at(self, trial: SearchTrial, levels: Levels) -> SearchTrial:
        """The trial at other levels, with the start that is expected to be best there."""
        task = self.made.task(levels)
        start = self.made.start(task, self._captured)
        return replace(trial, task=task, levels=levels, start=start, **self._other_tasks(levels))

    def _take_calls(self, trial: SearchTrial) -> None:
        """Makes eager's calls as a CUDA graph the best if they are right and faster, with branches or without."""
        calls = in_cuda_graphs(trial.task, (), self.made.distill.style)
        if not writes(trial.task, calls):
            return
        all_measured = len(self._probed.variants) == len(self.made.sample.variants)
        rest = None if all_measured else trial.on(self._more)
        for one in (calls, *one_after_another(calls)):
            found = trial.merit(one)
            if found.score >= Search.worth and (rest is None or not rest.wrong_again(one)):
                self.so_far.take_calls(trial, one)
                self._doubtful = one.style.branches and (found.device or 1.0) < 1.0
                return

    def _going_on(self, trial: SearchTrial, earlier: Best) -> SearchTrial:
        """The trial from the best of an earlier search."""
        task = trial.task
        levels = trial.levels | {dtypes: level for dtypes, level in earlier.levels.items() if dtypes in trial.levels}
        if any(levels.values()):
            task = self.made.task(levels)
        choice = replace(earlier.choice, patterns=known(task, earlier.choice))
        start = choice if writes(task, choice) and not choice.style.measured_apart else self.made.start(task)
        return replace(trial, task=task, levels=levels, start=start, **self._other_tasks(levels))

    def _search_stricter(self, trial: SearchTrial, levels: Levels) -> tuple[SearchTrial, Levels]:
        """Searches around the trial's start, and again at stricter levels for the dtypes that are wrong. Returns the
        last trial, and the levels that it was to have."""
        owed = True
        while writes(trial.task, trial.start) and (owed or self.so_far.best is None or self.clock() < self.end):
            wrong = trial.wrong(trial.start)
            if wrong and max(trial.levels.values()) == Rounding.EXACT:
                part = right_together(trial, self.end) or without_lanes(trial)
                if part is not None:
                    self._search_around(replace(trial, start=part))
            if not wrong and self.clock() < self.end:
                trial = self._exact_first(trial)
            wrong = wrong or self._search_around(trial)
            if not wrong and any(kernel.adds_in_turn for kernel in trial.task.kernels()):
                # eager's own launches may be faster
                wrong = {dtypes for dtypes, level in trial.levels.items() if level == Rounding.EXACT}
            owed = any(trial.levels[dtypes] < Rounding.EXACT for dtypes in wrong)
            if not wrong or (self.clock() >= self.end and not owed):
                break
            levels = {d: _stricter(level) if d in wrong else level for d, level in trial.levels.items()}
            if levels == trial.levels:
                self._search_around(trial)  # parts of it may be right
                break
            trial = self._at(trial, levels)
        return trial, levels

    def _search_around(self, trial: SearchTrial) -> set[FloatDtypes]:
        """Searches around the trial's start, and checks what it finds on more variants.

        If that is right there, and better than all before, it becomes the best. Returns the dtypes that are wrong
        there.
        """
        choice, measured = self._climbed(trial)
        if choice is not None and self.clock() < self.end and not trial.wrong(choice):
            self.so_far.in_turn_with(trial, choice)
        if choice is None or (not trial.wrong(choice) and trial.merit(choice).over(self.so_far.merit) <= 1.0):
            return set()
        again = trial.on(self._more)
        wrong = trial.wrong(choice) or again.wrong_again(choice)
        if wrong and self.clock() >= self.end:
            self._try_safer(trial, choice, wrong)
        if wrong or again.is_slower(choice):
            return wrong
        right = rightness(trial, again, choice)
        if right.complete and not right.wrong:
            wrong_alike = trial.share_wrong(each for each in measured if each.is_like(choice))
            self.so_far.consider(trial, choice, right, wrong_alike)
        self._try_safer(trial, choice, right.inexact)
        return right.wrong

    def _climbed(self, trial: SearchTrial) -> tuple[SearchChoice | None, list[SearchChoice]]:
        """The best choice around the trial's start, None for doing nothing, and all that were measured."""

        def improved(choice: SearchChoice) -> None:
            if trial.merit(choice).over(self.so_far.merit) > 1.0:
                self.so_far.keep(Best(choice, trial.levels))

        def neighbours(choice: SearchChoice) -> Iterable[SearchChoice]:
            return steps(trial.written(choice) if choice.style.other_regions else trial.task, choice)

        seconds = (self.end - self.clock()) * self._share(trial)
        search = Search(trial.merit, neighbours, seconds, clock=self.clock, improved=improved)
        single = one_after_another(trial.start) if self._doubtful else []
        others = (*in_other_regions(trial, self.made.distill.margin), *alternatives(trial.task, trial.start))
        choice = search.run(trial.start, *single, *others, sure=len(single))
        if choice is not None:
            choice = in_turns(near(trial, choice, search.measured), self.end)[0]
        return choice, search.measured

    def _share(self, trial: SearchTrial) -> float:
        """How much of the time that is left is for a search around the start: not all where eager's bits may have to be
        looked for behind it."""
        if min(trial.levels.values()) >= Rounding.EXACT or trial.wrong(trial.start):
            return 1.0
        return 1.0 if max(trial.rightness(trial.start).values()) <= EQUAL else _FIRST_SHARE

    def _exact_first(self, trial: SearchTrial) -> SearchTrial:
        """The trial with eager's bits, where its start has others and is expected to be worth less for that: what a
        search around it finds would have them, too."""
        levels = _exact_in(trial, {d for d, level in trial.rightness(trial.start).items() if level > EQUAL})
        if levels == trial.levels:
            return trial
        exact = self._at(trial, levels)
        level = max(trial.rightness(trial.start).values())

        def is_better() -> bool:
            return exact.merit(exact.start).over(trial.merit(trial.start).expected(level, draws=_FEW_DRAWS)) > 1.0

        if not writes(exact.task, exact.start) or not is_better():
            return trial
        trial.measure_again(trial.start)  # one measurement that others disturbed decides what is searched
        return exact if is_better() else trial

    def _try_safer(self, trial: SearchTrial, choice: SearchChoice, inexact: set[FloatDtypes]) -> None:
        """Considers passes with eager's bits in these dtypes: of the same regions as the choice, and of the regions
        that are likely then."""
        levels = _exact_in(trial, inexact)
        if levels == trial.levels:
            return
        task = self.made.task(levels)
        exact = replace(trial, task=task, levels=levels, **self._other_tasks(levels))
        written = exact.written(choice) if choice.style.other_regions else task
        same = replace(choice, patterns=known(written, choice))
        same = replace(same, style=by_lanes(written, same.style))
        others = (*in_other_order(written, same), *in_other_regions(exact, self.made.distill.margin))
        tried = dict.fromkeys((same, *others, self.made.start(task, self._captured)))
        merits = {safer: exact.merit(safer) for safer in tried if writes(task, safer)}
        for safer in ranked(merits):
            if merits[safer].over(self.so_far.merit) <= 1.0:
                return
            if (right := exact.confirmed(safer, self._more)) is not None:
                self.so_far.consider(exact, safer, right)
                return

    def _try_last(self, whole: SearchTrial, levels: Levels, earlier: Best | None, few_launches: bool) -> None:
        """Considers what no search comes to. `levels` are those at which the last search was right."""
        last = LastTries(self.made, self.so_far, self._more, self.seconds, self.end)
        last.one_stream(whole)
        if earlier is not None:
            begun = {dtypes: earlier.levels.get(dtypes, Rounding.ANY) for dtypes in levels}
            last.earlier(replace(whole, levels=begun), earlier.choice)
        variants = self.made.sample.variants
        exact = replace(whole, levels={d: min(level, Rounding.EXACT) for d, level in levels.items()})
        if has_split_linears(variants) and not self.clock.late:
            last.split_linears(exact, self._captured, few_launches)
        if has_small_products(variants) and not self.clock.late:
            last.products(exact, self._captured, few_launches)
        if self.compiled and not self.clock.late:
            last.compiled(replace(whole, levels=dict.fromkeys(levels, Rounding.ANY)))
        last.static(whole)


def _exact_in(trial: SearchTrial, inexact: Collection[FloatDtypes]) -> Levels:
    """The trial's levels, with eager's bits in these dtypes at least."""
    return {d: max(level, Rounding.EXACT) if d in inexact else level for d, level in trial.levels.items()}


def _stricter(level: Rounding) -> Rounding:
    return Rounding(min(level + 1, max(Rounding)))

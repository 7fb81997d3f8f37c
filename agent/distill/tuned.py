"""The offline author where there is a GPU: of the passes that `agent.distill.static` could write, the measured best.

The search starts from the pass that is expected to be best. A step changes one thing: a region more or less, other
block sizes or warps, sizes as arguments, the kernels that TorchInductor itself would make, whole graphs as
CUDA graphs (`agent.distill.whole_graphs`). PassBench measures each step on a few variants of the sample, until the time
is up. A pass that is wrong, or not clearly faster than eager, is not submitted. An output in which eager called twice
is not right at t = −5 counts as right where the pass is as near to eager as eager is (`agent.ahead.output_levels`).

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

Eager's linears in single precision add their biases within the product, often by a slower way to multiply than without
(`rewrites.split_biases`). Where eager's bits are kept otherwise, or nothing but views follows a linear, the same
kernels with linears without biases are measured behind the searches, and must be right in further draws.

So are kernels that compute small products of matrices, which saves their launches (`formulas.small_products`).

TorchInductor's own code for the whole graph (`agent.distill.inductor`) is measured behind these. Where it is right and
faster it is handed in as it is. The last that is measured, however late it is, is what `agent.distill.static` writes
without measuring: a search that had little time must not hand in less.

What a search finds is kept by family and device (`agent.distill.search.found_families`). A search that was killed, or
cut short because an answer was due, goes on from its best so far in a later run. Else a family is searched once.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from agent.author import Attempt, Author, Submission
from agent.distill.eager.order_probe import ProbedOrders
from agent.distill.last_tries import LastTries, has_small_products
from agent.distill.rounding import Confirms, Rounding, assumed
from agent.distill.search.best_so_far import BestSoFar
from agent.distill.search.found_families import Best, FamilySearch, FoundFamilies, Levels, SearchChoice
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
from agent.distill.static import Distill, SampleTasks, kept_orders
from agent.distill.task_plan import FloatDtypes, Task, float_dtypes, has_channels_last, has_split_linears
from agent.distill.whole_graphs import WORTH
from agent.distill.written_pass import allowed
from storage.records import Sample

_FIRST_SHARE = 0.6
"""What a search around kernels that are right, but have not eager's bits, may take of the time that is left."""
_FEW_DRAWS = 128
"""In so many draws more such kernels are about found right: 136 in the median of 58 passes, 18 to 512
(`benchmarks/passbench/h200_table_290`)."""

_NOTHING_FASTER = Submission("eager", reason="no pass that was measured is right and faster than eager")


@dataclass
class Tuned(Author):
    """Searches for the best pass of each sample by measuring.

    `seconds` is how long a sample may take, of which all but measuring counts by a quarter, `probes` how many of its
    variants are measured. `reach`: a region that is expected to cost up to so many microseconds a call is still tried.
    `found` has the answers by family.
    `channels_last`: half-type convolutions are tried in channels-last memory, too (`rewrites.channels_last`).
    `compiled`: TorchInductor's own code is tried, too (`agent.distill.inductor`).
    `orders` makes the function that confirms orders of addition on a device; `probed` keeps its answers.
    """

    distill: Distill = field(default_factory=Distill)
    name: str = "distill"
    seconds: float = 60.0
    probes: int = 6
    reach: float = 15.0
    found: dict[str, Best | None] = field(default_factory=dict)
    channels_last: bool = True
    compiled: bool = True
    orders: Callable[..., Confirms] = ProbedOrders
    probed: dict[str, bool] = field(default_factory=dict)
    measures: ClassVar[bool] = True

    @property
    def identity(self) -> Mapping[str, Any]:
        """What decides how attempts go; there is no model."""
        found = {"model": "", "seconds": self.seconds, "probes": self.probes, "reach": self.reach}
        return found | {"channels_last": self.channels_last, "compiled": self.compiled}

    def begin(self, saved: Iterable[Mapping[str, Any]]) -> None:
        """Start a run. The saved trajectories are not needed: searches that were killed are in `attempt.state`."""
        self.found.clear()

    def attempt(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """The best pass found. Without a GPU: what `distill` writes without measuring."""
        if not attempt.device.startswith("cuda"):
            return self.distill.write(sample, directory)
        return allowed(self._chosen(sample, directory, attempt), directory)

    def _chosen(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        tasks = self.tasks_of(sample)
        task = tasks.task()
        start = tasks.start(task)
        if not writes(task, start):
            return task.write((), start.style, directory)
        if sample.family_hash not in self.found:
            self.found[sample.family_hash] = self._searched(task, sample, attempt)
        best = self.found[sample.family_hash]
        if best is None:
            return _NOTHING_FASTER
        return self._written(best, task, sample, directory, attempt)

    def fallback(self, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """What a search has found that was finished before the attempt was ended. The best of another one, if that has
        kernels with eager's bits: others may not have been checked. Else what `distill` writes without measuring, or
        eager's calls as the search has found them faster."""
        earlier = self._families(attempt).load(sample.family_hash)
        best, finished = (earlier.best, earlier.finished) if earlier is not None else (None, False)
        if finished and best is None:
            return _NOTHING_FASTER
        sure = best is not None and best.choice.patterns and min(best.levels.values()) >= Rounding.EXACT
        if not finished and not sure:
            written = self.distill.write(sample, directory, self._confirms(attempt))
            if written.compiler == "pass" or best is None or best.choice.patterns or best.choice.style.compiled:
                return written
        return allowed(self._written(best, self.tasks_of(sample).task(), sample, directory, attempt), directory)

    def _written(self, best: Best, task: Task, sample: Sample, directory: Path, attempt: Attempt) -> Submission:
        """The pass of the best choice; `task` is the sample's where nothing is left to eager."""
        if best.static:
            return self.distill.write(sample, directory, self._confirms(attempt))
        style = best.choice.style
        if style.own_schedule or (style.measured_apart and not style.compiled) or any(best.levels.values()):
            ways = {each: getattr(style, each) for each in ("channels_last", "split_linears", "joined", "products")}
            task = self.tasks_of(sample, self._confirms(attempt)).task(best.levels, style.own_schedule, **ways)
        return task.write(known(task, best.choice), replace(style, for_others=self._confirms(attempt)), directory)

    def _families(self, attempt: Attempt) -> FoundFamilies:
        kept = attempt.state / "families" if attempt.state is not None else None
        return FoundFamilies(kept, attempt.device, self.identity)

    def _searched(self, task: Task, sample: Sample, attempt: Attempt) -> Best | None:
        """The family's best, by an earlier search if that was finished. Another one goes on from its best."""
        families = self._families(attempt)
        earlier = families.load(sample.family_hash)
        if earlier is not None and earlier.finished:
            attempt.say("this family was searched before")
            return earlier.best
        clock, used = SearchClock(attempt.due), earlier.seconds if earlier is not None else 0.0

        def keep(best: Best | None, finished: bool = False) -> None:
            families.keep(sample.family_hash, FamilySearch(best, used + clock.counted, finished))

        start = earlier.best if earlier is not None else None
        best = self._best(task, sample, attempt, start, clock, max(self.seconds - used, 0.0), keep)
        keep(best, finished=not clock.late)
        return best

    def _best(
        self,
        task: Task,
        sample: Sample,
        attempt: Attempt,
        earlier: Best | None,
        clock: SearchClock,
        end: float,
        keep: Callable[[Best], None],
    ) -> Best | None:
        """The best pass of two searches.

        The first is around a start that is right, if leaving more to eager leads to one. The second leaves nothing to
        eager: a part of such a pass may be right. Before both, where many launches are left, eager's calls as one CUDA
        graph are measured: whatever else is wrong, they are not. If they are faster, both searches start from CUDA
        graphs. The first start is measured even if the time is up by then. `earlier`, the best of a search that did not
        come to its end, is where this one starts. `end` is a time of `clock`. `keep` is given each best so far.
        """
        graphs = float_dtypes(sample.variants)
        probed, more = (replace(sample, variants=spread(sample.variants, n)) for n in (self.probes, 2 * self.probes))
        levels, made = dict.fromkeys(graphs.values(), Rounding.ANY), self.tasks_of(sample, self._confirms(attempt))
        if earlier is None and task.feeds_calls(made.start(task).patterns):
            levels = dict.fromkeys(levels, Rounding.EXACT)
            task = made.task(levels)

        def left() -> float:
            return (end - clock()) / OTHER

        converts = self.channels_last and has_channels_last(sample.variants)

        def tasks(levels: Levels) -> dict[str, Callable]:
            return made.others(levels, left, channels_last=converts)

        trial = whole = SearchTrial(task, levels, made.start(task), probed, attempt, graphs, clock, **tasks(levels))
        so_far = BestSoFar(keep)
        few = task.launches(whole.start.patterns) < WORTH
        calls = in_cuda_graphs(task, (), self.distill.style)
        doubtful = False  # whether branches may cost the device more than they save
        if earlier is None and not few and whole.start.patterns and writes(task, calls):
            rest = trial.on(more) if len(probed.variants) < len(sample.variants) else None
            for one in (calls, *one_after_another(calls)):
                found = trial.merit(one)
                if found.score >= Search.worth and (rest is None or not rest.wrong_again(one)):
                    so_far.take_calls(trial, one)
                    doubtful = one.style.branches and (found.device or 1.0) < 1.0
                    trial = whole = replace(whole, start=made.start(task, captured=True))
                    break

        def search_around(trial: SearchTrial) -> set[FloatDtypes]:
            """Searches around the trial's start, and checks what it finds on more variants.

            If that is right there, and better than all before, it becomes the best. Returns the dtypes that are wrong
            there.
            """

            def improved(choice: SearchChoice) -> None:
                if trial.merit(choice).over(so_far.merit) > 1.0:
                    keep(Best(choice, trial.levels))

            def neighbours(choice: SearchChoice) -> Iterable[SearchChoice]:
                return steps(trial.written(choice) if choice.style.other_regions else trial.task, choice)

            search = Search(trial.merit, neighbours, (end - clock()) * share(trial), clock=clock, improved=improved)
            single = one_after_another(trial.start) if doubtful else []
            others = (*in_other_regions(trial, self.distill.margin), *alternatives(trial.task, trial.start))
            choice = search.run(trial.start, *single, *others, sure=len(single))
            if choice is not None:
                choice = in_turns(near(trial, choice, search.measured), end)[0]
            if choice is not None and clock() < end and not trial.wrong(choice):
                so_far.in_turn_with(trial, choice)
            if choice is None or (not trial.wrong(choice) and trial.merit(choice).over(so_far.merit) <= 1.0):
                return set()
            again = trial.on(more)
            wrong = trial.wrong(choice) or again.wrong_again(choice)
            if wrong and clock() >= end:
                try_safer(trial, choice, wrong)
            if wrong or again.is_slower(choice):
                return wrong
            right = rightness(trial, again, choice)
            if right.complete and not right.wrong:
                wrong_alike = trial.share_wrong(each for each in search.measured if each.is_like(choice))
                so_far.consider(trial, choice, right, wrong_alike)
            try_safer(trial, choice, right.inexact)
            return right.wrong

        def share(trial: SearchTrial) -> float:
            """How much of the time that is left is for a search around the start: not all where eager's bits may have
            to be looked for behind it."""
            if min(trial.levels.values()) >= Rounding.EXACT or trial.wrong(trial.start):
                return 1.0
            return 1.0 if max(trial.rightness(trial.start).values()) <= EQUAL else _FIRST_SHARE

        def exact_first(trial: SearchTrial) -> SearchTrial:
            """The trial with eager's bits, where its start has others and is expected to be worth less for that: what a
            search around it finds would have them, too."""
            inexact = {dtypes for dtypes, level in trial.rightness(trial.start).items() if level > EQUAL}
            levels = {d: max(level, Rounding.EXACT) if d in inexact else level for d, level in trial.levels.items()}
            if levels == trial.levels:
                return trial
            task = made.task(levels)
            exact = replace(trial, task=task, levels=levels, start=made.start(task, captured), **tasks(levels))
            level = max(trial.rightness(trial.start).values())

            def is_better() -> bool:
                return exact.merit(exact.start).over(trial.merit(trial.start).expected(level, draws=_FEW_DRAWS)) > 1.0

            if not writes(task, exact.start) or not is_better():
                return trial
            trial.measure_again(trial.start)  # one measurement that others disturbed decides what is searched
            return exact if is_better() else trial

        def try_safer(trial: SearchTrial, choice: SearchChoice, inexact: set[FloatDtypes]) -> None:
            """Considers passes with eager's bits in these dtypes: of the same regions as the choice, and of the regions
            that are likely then."""
            levels = {d: max(level, Rounding.EXACT) if d in inexact else level for d, level in trial.levels.items()}
            if levels == trial.levels:
                return
            task = made.task(levels)
            exact = replace(trial, task=task, levels=levels, **tasks(levels))
            written = exact.written(choice) if choice.style.other_regions else task
            same = replace(choice, patterns=known(written, choice))
            same = replace(same, style=by_lanes(written, same.style))
            others = (*in_other_order(written, same), *in_other_regions(exact, self.distill.margin))
            tried = dict.fromkeys((same, *others, made.start(task, captured)))
            merits = {safer: exact.merit(safer) for safer in tried if writes(task, safer)}
            for safer in ranked(merits):
                if merits[safer].over(so_far.merit) <= 1.0:
                    return
                if (right := exact.confirmed(safer, more)) is not None:
                    so_far.consider(exact, safer, right)
                    return

        captured = so_far.best is not None
        if earlier is not None:
            levels = levels | {dtypes: level for dtypes, level in earlier.levels.items() if dtypes in levels}
            if any(levels.values()):
                task = made.task(levels)
            choice = replace(earlier.choice, patterns=known(task, earlier.choice))
            start = choice if writes(task, choice) and not choice.style.measured_apart else made.start(task)
            trial = replace(trial, task=task, levels=levels, start=start, **tasks(levels))
        owed = True
        while writes(trial.task, trial.start) and (owed or so_far.best is None or clock() < end):
            wrong = trial.wrong(trial.start)
            if wrong and max(trial.levels.values()) == Rounding.EXACT:
                part = right_together(trial, end) or without_lanes(trial)
                if part is not None:
                    search_around(replace(trial, start=part))
            if not wrong and clock() < end:
                trial = exact_first(trial)
            wrong = wrong or search_around(trial)
            if not wrong and any(kernel.adds_in_turn for kernel in trial.task.kernels()):
                # eager's own launches may be faster
                wrong = {dtypes for dtypes, level in trial.levels.items() if level == Rounding.EXACT}
            owed = any(trial.levels[dtypes] < Rounding.EXACT for dtypes in wrong)
            if not wrong or (clock() >= end and not owed):
                break
            levels = {d: _stricter(level) if d in wrong else level for d, level in trial.levels.items()}
            if levels == trial.levels:
                search_around(trial)  # parts of it may be right
                break
            task = made.task(levels)
            start = made.start(task, captured)
            trial = replace(trial, task=task, levels=levels, start=start, **tasks(levels))
        if trial is not whole and (so_far.best is None or clock() < end):
            search_around(whole)
        last = LastTries(made, so_far, more, self.seconds, end)
        last.one_stream(whole)
        if earlier is not None:
            begun = {dtypes: earlier.levels.get(dtypes, Rounding.ANY) for dtypes in levels}
            last.earlier(replace(whole, levels=begun), earlier.choice)
        exact = {d: min(level, Rounding.EXACT) for d, level in levels.items()}
        if has_split_linears(sample.variants) and not clock.late:
            last.split_linears(replace(whole, levels=exact), captured, few)
        if has_small_products(sample.variants) and not clock.late:
            last.products(replace(whole, levels=exact), captured, few)
        if self.compiled and not clock.late:
            last.compiled(replace(whole, levels=dict.fromkeys(levels, Rounding.ANY)))
        last.static(whole)
        return so_far.best

    def tasks_of(self, sample: Sample, confirms: Confirms = assumed) -> SampleTasks:
        """The tasks of a sample in which the search looks."""
        return SampleTasks(self.distill, sample, self.reach, confirms)

    def _confirms(self, attempt: Attempt) -> Confirms:
        return self.orders(attempt.device, attempt.say, kept_orders(attempt), self.probed)


def _stricter(level: Rounding) -> Rounding:
    return Rounding(min(level + 1, max(Rounding)))

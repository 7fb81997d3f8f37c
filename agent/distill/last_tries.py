"""What is measured behind the searches of a sample: single passes that no search comes to.

Eager's linears in single precision add their biases within the product, often by a slower way to multiply than without
(`rewrites.split_biases`). Where eager's bits are kept otherwise, or nothing but views follows a linear, the same
kernels with linears without biases are measured, and must be right in further draws. So are kernels that compute small
products of matrices, which saves their launches (`formulas.small_products`).

TorchInductor's own code for the whole graph (`agent.distill.inductor`) is measured behind these. Where it is right and
faster it is handed in as it is. The last that is measured, however late it is, is what `agent.distill.static` writes
without measuring: a search that had little time must not hand in less.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from agent.distill.eager.op_effects import OpEffectsError, find_effects
from agent.distill.inductor.whole_source import STRICT
from agent.distill.kernels.formulas.small_products import LEAST, MOST, has_kernel
from agent.distill.search.best_so_far import BestSoFar
from agent.distill.search.found_families import SearchChoice
from agent.distill.search.last_turns import in_turns, near
from agent.distill.search.neighbours import by_lanes, compiled_alternatives, in_cuda_graphs, one_after_another
from agent.distill.search.trial import SearchTrial, known, right_together, writes
from agent.distill.source.style import Style
from agent.distill.static import SampleTasks
from agent.distill.ways import Ways
from agent.distill.whole_graphs import WORTH
from storage.records import Sample, Variant

_COMPILED = 0.2
"""What the search among configurations of TorchInductor's own code may take at least, a share of all."""
_SPLIT = 0.15
"""The same of the search for those linears without biases that are right together."""


def has_small_products(variants: Iterable[Variant]) -> bool:
    """Whether a graph has products of matrices that kernels could compute in each of these variants."""
    with suppress(OpEffectsError):
        return all(map(_has_small_product, variants))
    return False


def _has_small_product(variant: Variant) -> bool:
    known = find_effects(variant.graph, variant.inputs)
    named = zip(variant.graph.op_sequence, variant.graph.ops, strict=True)
    products = (number for number, (name, op) in enumerate(named) if has_kernel(name, op.kwargs))
    return any(known.products_added(op) >= LEAST and known.flops[op] <= 2 * MOST for op in products)


@dataclass(frozen=True)
class LastTries:
    """Considers passes for `so_far`, which is checked on `more` variants. `made` makes the sample's tasks. `seconds` is
    what a sample may take, `end` when that is over, a time of the trials' clock."""

    made: SampleTasks
    so_far: BestSoFar
    more: Sample
    seconds: float
    end: float

    def one_stream(self, whole: SearchTrial) -> None:
        """Considers eager's calls without branches where they are the best with them: no search has tried that."""
        best = self.so_far.best
        if best is None or best.choice.patterns or not best.choice.style.branches:
            return
        (one,) = one_after_another(best.choice)
        if whole.merit(one).over(self.so_far.merit) > 1.0 and not whole.on(self.more).wrong_again(one):
            self.so_far.take_calls(whole, one)

    def earlier(self, trial: SearchTrial, best: SearchChoice) -> None:
        """Considers the best of a search that did not come to its end, whatever time it is, where no search begins with
        such a one: there may be no time to find it again."""
        style, levels = best.style, trial.levels
        if not style.measured_apart:
            return
        task = self.made.task(levels, Ways(split_linears=style.split_linears, products=style.products))
        others = self.made.others(levels, lambda: math.inf, channels_last=style.channels_last)
        trial = replace(trial, task=task, **others)
        choice = replace(best, patterns=known(trial.written(best), best))
        if writes(trial.written(best), choice):
            self._consider(replace(trial, start=choice), choice)

    def split_linears(self, trial: SearchTrial, captured: bool, few: bool) -> None:
        """Considers linears without their biases, which kernels add, where these have been left to the calls: all of
        them, or those that are right together. `captured`: kernels that save the device time are likely. `few`: there
        are too few launches for a CUDA graph."""
        so_far, task = self.so_far, self.made.task(trial.levels, Ways(split_linears=True))
        chosen = known(task, so_far.best.choice) if so_far.best is not None else ()
        patterns = sorted({*(chosen or self.made.start(task, captured).patterns), *task.with_linears()})
        if task.with_linears():
            style = replace(by_lanes(task, self.made.distill.style), split_linears=True)
            self._other_bits(replace(trial, task=task), patterns, style, few)

    def products(self, trial: SearchTrial, captured: bool, few: bool) -> None:
        """Considers kernels that compute small products, or those of them that are right together. The rest is as in
        `split_linears`."""
        task = self.made.task(trial.levels, Ways(products=True))
        style = replace(by_lanes(task, self.made.distill.style), products=True)
        self._other_bits(replace(trial, task=task), self.made.start(task, captured).patterns, style, few)

    def _other_bits(self, trial: SearchTrial, patterns: Sequence[str], style: Style, few: bool) -> None:
        """Considers kernels whose products have other bits than eager's, or those of them that are right together."""
        choice = SearchChoice(tuple(patterns), style) if few else in_cuda_graphs(trial.task, patterns, style)
        trial, so_far = replace(trial, start=choice), self.so_far
        if not writes(trial.task, choice):
            return
        if trial.wrong(choice):
            choice = right_together(trial, max(self.end, trial.clock() + _SPLIT * self.seconds)) or choice
        found, merit = trial.merit(choice), so_far.merit
        if found.over(merit) <= 1.0 and (found.device or 0.0) > (merit.device or 0.0):
            trial.measure_again(choice)  # others may have disturbed the host
        self._consider(trial, choice)

    def compiled(self, trial: SearchTrial) -> None:
        """Considers TorchInductor's own code: once, and in other configurations while there is time, at least
        `_COMPILED` of all."""
        clock, so_far = trial.clock, self.so_far
        late = max(self.end, clock() + _COMPILED * self.seconds)
        style = replace(self.made.distill.style, compiled=STRICT)
        if not writes(trial.task, SearchChoice((), style)):
            return
        found = SearchChoice((), replace(style, captured=trial.task.compiled_launches(style) >= WORTH))
        if not trial.merit(found).score:
            return
        tried, others = [found], compiled_alternatives(trial.task, found)
        while clock() < late and (other := next(others, None)) is not None:
            tried.append(other)
            if trial.merit(other).over(trial.merit(found)) > 1.0:
                found = other
        candidates = near(trial, found, tried)
        if so_far.latest is not None:
            candidates.append((so_far.latest[0], so_far.best.choice))
        found = next(each for each in in_turns(candidates, late) if each in tried)
        so_far.look_again()
        self._consider(trial, found)

    def static(self, trial: SearchTrial) -> None:
        """Considers what `distill` writes without a clock, whatever time it is: a search that was cut short, or that
        others disturbed, must not hand in less."""
        so_far, latest = self.so_far, self.so_far.latest
        task, choice = self.made.distill.choice(self.made.sample, self.made.confirms)
        if not writes(task, choice):
            return
        levels = dict.fromkeys(trial.levels, self.made.distill.rounding)
        static = replace(trial, task=task, levels=levels, start=choice)
        if latest is not None and static.is_same(choice, latest[0], so_far.best.choice):
            return
        if not trial.clock.late:
            so_far.in_turn_with(static, choice)
        self._consider(static, choice, static=True)

    def _consider(self, trial: SearchTrial, choice: SearchChoice, static: bool = False) -> None:
        """Makes the choice the best if it is right on more variants, too, and expected to be the best."""
        if trial.merit(choice).over(self.so_far.merit) <= 1.0:
            return
        if (right := trial.confirmed(choice, self.more)) is not None:
            self.so_far.consider(trial, choice, right, static=static)

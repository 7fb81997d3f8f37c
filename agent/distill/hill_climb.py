"""Finding the best of several choices by measuring few of them: best so far, within a time, for any kind of choice.

A choice is measured as a score: the speedup over doing nothing, 1 for doing nothing itself, None for one that is wrong
or does not run. Doing nothing is never measured: it is what is left where nothing else is clearly better.
"""

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Choice = TypeVar("Choice", bound=Hashable)

Measure = Callable[[Choice], float | None]
"""A choice's speedup over doing nothing; None where it is no answer at all."""
Neighbours = Callable[[Choice], Iterable[Choice]]
"""Choices that are worth a try after this one turned out to be the best so far, the most promising first."""


@dataclass
class Search(Generic[Choice]):
    """Greedy ascent: the start, then those `neighbours` of the best so far that are not measured, first gains first.

    `worth` is the speedup below which a choice is no better than nothing, noise and all; `better` the factor by which a
    neighbour must beat the best to replace it. `seconds` bounds the whole, though a measurement that has begun ends.
    `measured` has every score in order, and may hold some from before: these are not measured again. `improved` is
    called with each choice that is worth it and better than all before.
    """

    measure: Measure
    neighbours: Neighbours
    seconds: float
    worth: float = 1.02
    better: float = 1.01
    clock: Callable[[], float] = time.monotonic
    improved: Callable[[Choice], None] = lambda choice: None
    measured: dict[Choice, float | None] = field(default_factory=dict)

    def run(self, start: Choice) -> Choice | None:
        """The best choice found; None for doing nothing."""
        end = self.clock() + self.seconds
        best, score = start, self._score(start)
        if score >= self.worth:
            self.improved(start)
        improved = True
        while improved:
            improved = False
            for choice in self.neighbours(best):
                if choice in self.measured:
                    continue
                if self.clock() >= end:
                    return best if score >= self.worth else None
                found = self._score(choice)
                if found > score * self.better:
                    best, score, improved = choice, found, True
                    if score >= self.worth:
                        self.improved(choice)
                    break
        return best if score >= self.worth else None

    def _score(self, choice: Choice) -> float:
        if choice not in self.measured:
            self.measured[choice] = self.measure(choice)
        return self.measured[choice] or 0.0

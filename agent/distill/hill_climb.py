"""Hill climbing over choices that are expensive to measure: the best that is found within a time.

The score of a choice is its speedup over doing nothing; None if it is wrong or does not run. Doing nothing has the
score 1 and is never measured: it is the answer if no choice is clearly better.
"""

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Choice = TypeVar("Choice", bound=Hashable)

Measure = Callable[[Choice], float | None]
"""A choice's speedup over doing nothing; None if it is wrong or does not run."""
Neighbours = Callable[[Choice], Iterable[Choice]]
"""Choices to try when this one is the best so far, the most promising first."""


@dataclass
class Search(Generic[Choice]):
    """Greedy ascent: measures the starts, then `neighbours` of the best so far, and moves to the first that is better.

    `worth`: a speedup below this may be noise, and counts as no better than doing nothing. `better`: a neighbour must
    beat the best by this factor to replace it. No measurement but the first begins that would end after `seconds` if it
    took as long as the last. `measured` has every score in
    order; scores that it holds from before are not measured again. `improved` is called with each new best that is
    `worth` it.
    """

    measure: Measure
    neighbours: Neighbours
    seconds: float
    worth: float = 1.02
    better: float = 1.01
    clock: Callable[[], float] = time.monotonic
    improved: Callable[[Choice], None] = lambda choice: None
    measured: dict[Choice, float | None] = field(default_factory=dict)
    _last: float = 0.0  # what the last measurement took

    def run(self, start: Choice, *others: Choice) -> Choice | None:
        """The best choice found; None if that is to do nothing. It climbs from the best of `start` and `others`."""
        end = self.clock() + self.seconds
        best, score = start, self._score(start)
        if score >= self.worth:
            self.improved(start)
        for other in others:
            if self._in_time(end) and self._score(other) > score * self.better:
                best, score = other, self._score(other)
                if score >= self.worth:
                    self.improved(other)
        improved = True
        while improved:
            improved = False
            for choice in self.neighbours(best):
                if choice in self.measured:
                    continue
                if not self._in_time(end):
                    return best if score >= self.worth else None
                found = self._score(choice)
                if found > score * self.better:
                    best, score, improved = choice, found, True
                    if score >= self.worth:
                        self.improved(choice)
                    break
        return best if score >= self.worth else None

    def _in_time(self, end: float) -> bool:
        return self.clock() < end and self.clock() + self._last <= end

    def _score(self, choice: Choice) -> float:
        if choice not in self.measured:
            begin = self.clock()
            self.measured[choice] = self.measure(choice)
            self._last = self.clock() - begin
        return self.measured[choice] or 0.0

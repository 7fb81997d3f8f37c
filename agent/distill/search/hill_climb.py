"""Hill climbing over choices that are expensive to measure: the best that is found within a time.

Doing nothing has the score 1 and is never measured: it is the answer if no choice is clearly better.
"""

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from agent.distill.search.scores import Merit

Choice = TypeVar("Choice", bound=Hashable)

Measure = Callable[[Choice], Merit]
"""How good a choice is; the score is 0.0 if it is wrong or does not run. Asked again it takes no time, and may say
otherwise: measurements of other choices tell more of this one, too."""
Neighbours = Callable[[Choice], Iterable[Choice]]
"""Choices to try when this one is the best so far, the most promising first."""


@dataclass
class Search(Generic[Choice]):
    """Greedy ascent: measures the starts, then `neighbours` of the best so far, and moves to the first that is better.

    `worth`: a score below this may be noise, and counts as no better than doing nothing. `better`: a neighbour must
    be so many times as good as the best to replace it (`Merit.over`). No measurement but the first begins that would
    end after `seconds` if it took as long as the last. `measured` has every choice in order. `improved` is called with
    each new best that is `worth` it.
    """

    measure: Measure
    neighbours: Neighbours
    seconds: float
    worth: float = 1.02
    better: float = 1.01
    clock: Callable[[], float] = time.monotonic
    improved: Callable[[Choice], None] = lambda choice: None
    measured: list[Choice] = field(init=False, default_factory=list)
    _last: float = 0.0  # what the last measurement took

    def run(self, start: Choice, *others: Choice, sure: int = 0) -> Choice | None:
        """The best choice found; None if that is to do nothing. It climbs from the best of `start` and `others`, of
        which so many are measured for `sure`, whatever the time."""
        end = self.clock() + self.seconds
        best = start
        self._told(start)
        for number, other in enumerate(others):
            if (number < sure or self._in_time(end)) and self._is_better(other, best):
                best = other
                self._told(other)
        improved = True
        while improved:
            improved = False
            for choice in self.neighbours(best):
                if choice in self.measured:
                    continue
                if not self._in_time(end):
                    return self._worthy(best)
                if self._is_better(choice, best):
                    best, improved = choice, True
                    self._told(choice)
                    break
        return self._worthy(best)

    def _is_better(self, choice: Choice, best: Choice) -> bool:
        found = self._merit(choice)  # measured first: it may tell more of the best
        return found.over(self._merit(best)) > self.better

    def _worthy(self, choice: Choice) -> Choice | None:
        return choice if self._merit(choice).score >= self.worth else None

    def _told(self, choice: Choice) -> None:
        if self._worthy(choice) is not None:
            self.improved(choice)

    def _in_time(self, end: float) -> bool:
        return self.clock() < end and self.clock() + self._last <= end

    def _merit(self, choice: Choice) -> Merit:
        if choice in self.measured:
            return self.measure(choice)
        begin = self.clock()
        self.measured.append(choice)
        merit = self.measure(choice)
        self._last = self.clock() - begin
        return merit

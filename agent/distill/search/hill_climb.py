"""Hill climbing over choices that are expensive to measure: the best that is found within a time.

Doing nothing has the score 1 and is never measured: it is the answer if no choice is clearly better.
"""

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from agent.distill.search.scores import Merit

Choice = TypeVar("Choice", bound=Hashable)

Measure = Callable[[Choice], Merit]
"""How good a choice is; the score is 0.0 if it is wrong or does not run."""
Neighbours = Callable[[Choice], Iterable[Choice]]
"""Choices to try when this one is the best so far, the most promising first."""


@dataclass
class Search(Generic[Choice]):
    """Greedy ascent: measures the starts, then `neighbours` of the best so far, and moves to the first that is better.

    `worth`: a score below this may be noise, and counts as no better than doing nothing. `better`: a neighbour must
    be so many times as good as the best to replace it (`Merit.over`). No measurement but the first begins that would
    end after `seconds` if it took as long as the last. `measured` has every merit in order; what it holds from before
    is not measured again. `improved` is called with each new best that is `worth` it.
    """

    measure: Measure
    neighbours: Neighbours
    seconds: float
    worth: float = 1.02
    better: float = 1.01
    clock: Callable[[], float] = time.monotonic
    improved: Callable[[Choice], None] = lambda choice: None
    measured: dict[Choice, Merit] = field(default_factory=dict)
    _last: float = 0.0  # what the last measurement took

    def run(self, start: Choice, *others: Choice) -> Choice | None:
        """The best choice found; None if that is to do nothing. It climbs from the best of `start` and `others`."""
        end = self.clock() + self.seconds
        best, merit = start, self._merit(start)
        if merit.score >= self.worth:
            self.improved(start)
        for other in others:
            if self._in_time(end) and self._merit(other).over(merit) > self.better:
                best, merit = other, self._instead(merit, self._merit(other))
                if merit.score >= self.worth:
                    self.improved(other)
        improved = True
        while improved:
            improved = False
            for choice in self.neighbours(best):
                if choice in self.measured:
                    continue
                if not self._in_time(end):
                    return best if merit.score >= self.worth else None
                found = self._merit(choice)
                if found.over(merit) > self.better:
                    best, merit, improved = choice, self._instead(merit, found), True
                    if merit.score >= self.worth:
                        self.improved(choice)
                    break
        return best if merit.score >= self.worth else None

    @staticmethod
    def _instead(old: Merit, new: Merit) -> Merit:
        """The merit of a new best. Where the device's clock has decided, a lower score was the host's other work."""
        return replace(new, score=max(old.score, new.score))

    def _in_time(self, end: float) -> bool:
        return self.clock() < end and self.clock() + self._last <= end

    def _merit(self, choice: Choice) -> Merit:
        if choice not in self.measured:
            begin = self.clock()
            self.measured[choice] = self.measure(choice)
            self._last = self.clock() - begin
        return self.measured[choice]

"""The best pass that the searches of a sample have found so far, and what it is worth."""

from collections.abc import Callable
from dataclasses import dataclass

from agent.distill.search.found_families import Best, SearchChoice
from agent.distill.search.last_turns import in_turns
from agent.distill.search.scores import EQUAL, NOTHING, Merit
from agent.distill.search.trial import Rightness, SearchTrial

_NEAR = 0.9
"""What is about as good as the best by single measurements may be better: eager's calls that one measurement had at
1.15 on the device stayed the best of typical-8b43fb4bcda3, where kernels had 1.13 and calls have 1.0."""


@dataclass
class BestSoFar:
    """`best` and its `merit`; None and that of doing nothing as long as eager is best. `keep` is given each new best.
    `latest` is the trial that has measured it, how right it is there, and the share of passes like it that are
    wrong."""

    keep: Callable[[Best], None]
    best: Best | None = None
    merit: Merit = NOTHING
    latest: tuple[SearchTrial, Rightness, float] | None = None

    def take_calls(self, trial: SearchTrial, choice: SearchChoice) -> None:
        """Make eager's calls, as a CUDA graph, the best."""
        self.latest = trial, Rightness(dict.fromkeys(trial.levels, EQUAL), 0), 0.0
        self._take(Best(choice, trial.levels), trial.merit(choice))

    def consider(
        self, trial: SearchTrial, choice: SearchChoice, right: Rightness, wrong: float = 0.0, static: bool = False
    ) -> None:
        """Make the choice the best if it is expected to be. `wrong` is the share of passes like it that are."""
        worth = trial.merit(choice).expected(right.level, wrong, right.draws, right.chance)
        if worth.over(self.merit) > 1.0:
            self.latest = trial, right, wrong
            self._take(Best(choice, trial.levels, static), worth)

    def in_turn_with(self, trial: SearchTrial, choice: SearchChoice) -> None:
        """Measure the best and a choice that is about as good once more each: one measurement that others disturbed
        decides nothing. A choice that is clearly better or worse is not measured."""
        if self.latest is not None and _NEAR < trial.merit(choice).over(self.merit) < 1.0 / _NEAR:
            in_turns([(self.latest[0], self.best.choice), (trial, choice)], trial.clock())
            self.look_again()

    def look_again(self) -> None:
        """Have the merit by all that the best's trial has measured meanwhile."""
        if self.latest is not None:
            trial, right, wrong = self.latest
            self.merit = trial.merit(self.best.choice).expected(right.level, wrong, right.draws, right.chance)

    def _take(self, best: Best, merit: Merit) -> None:
        self.best, self.merit = best, merit
        self.keep(best)

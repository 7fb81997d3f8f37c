"""The best pass that the searches of a sample have found so far, and what it is worth."""

from collections.abc import Callable
from dataclasses import dataclass

from agent.distill.search.found_families import Best, SearchChoice
from agent.distill.search.scores import NOTHING, Merit
from agent.distill.search.trial import Rightness, SearchTrial


@dataclass
class BestSoFar:
    """`best` and its `merit`; None and that of doing nothing as long as eager is best. `keep` is given each new best.
    `latest` is the trial that has measured it, how right it is there, and the share of passes like it that are wrong;
    None for eager's calls."""

    keep: Callable[[Best], None]
    best: Best | None = None
    merit: Merit = NOTHING
    latest: tuple[SearchTrial, Rightness, float] | None = None

    def take(self, best: Best, merit: Merit) -> None:
        """Make this one the best."""
        self.best, self.merit = best, merit
        self.keep(best)

    def consider(
        self, trial: SearchTrial, choice: SearchChoice, right: Rightness, wrong: float = 0.0, static: bool = False
    ) -> None:
        """Make the choice the best if it is expected to be. `wrong` is the share of passes like it that are."""
        worth = trial.merit(choice).expected(right.level, wrong, right.draws, right.chance)
        if worth.over(self.merit) > 1.0:
            self.latest = trial, right, wrong
            self.take(Best(choice, trial.levels, static), worth)

    def look_again(self) -> None:
        """Have the merit by all that the best's trial has measured meanwhile."""
        if self.latest is not None:
            trial, right, wrong = self.latest
            self.merit = trial.merit(self.best.choice).expected(right.level, wrong, right.draws, right.chance)

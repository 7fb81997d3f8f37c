"""The last candidates of a search measured once more, in turns: one measurement alone scatters by a tenth and more.

Where a log of the table's has one choice twice, the device's speedups are a tenth apart in 22 of 85
(`benchmarks/passbench/h100_table`).
"""

from collections.abc import Iterable, Sequence

from agent.distill.search.found_families import SearchChoice
from agent.distill.search.scores import ranked
from agent.distill.search.trial import SearchTrial

_NEAR = 0.9
"""What is this fast on the device, of the best, may be the best."""
_MOST, _TURNS = 3, 2
"""So many candidates, the best among them, so many times more."""

Candidate = tuple[SearchTrial, SearchChoice]
"""A choice, and the trial that measures it."""


def near(trial: SearchTrial, best: SearchChoice, others: Iterable[SearchChoice]) -> list[Candidate]:
    """The best with those right choices that are about as fast on the device, the fastest first."""
    devices = {other: merit.device for other in others if (merit := trial.merit(other)).score and merit.device}
    least = _NEAR * (trial.merit(best).device or 0.0)
    some = sorted((o for o in devices if o != best and devices[o] >= least), key=lambda o: -devices[o])
    return [(trial, choice) for choice in [best, *some[: _MOST - 1]]]


def in_turns(candidates: Sequence[Candidate], end: float) -> list[SearchChoice]:
    """The choices, the best first by all measurements: each is measured in its turn, once at least, and no turn begins
    behind `end`, a time of the trials' clock. One alone is not measured again."""
    for turn in range(_TURNS if len(candidates) > 1 else 0):
        if turn and candidates[0][0].clock() >= end:
            break
        for trial, choice in candidates:
            trial.measure_again(choice)
    return ranked({choice: trial.merit(choice) for trial, choice in candidates})

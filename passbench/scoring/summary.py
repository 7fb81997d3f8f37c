"""A set of variants in a line: N, AS with its interval, the scores at one level, fast_p, the share that is slower."""

from collections.abc import Sequence
from dataclasses import dataclass

from passbench.score import B, Level, ScoredVariant, aggregate_of, fast_p, log_score, score_table
from passbench.scoring.bootstrap import interval

FAST = (0.8, 1.0, 1.2, 1.5, 2.0)
"""Speedups p of the fast_p table."""


@dataclass(frozen=True)
class Summary:
    """Scores of a set of variants by one clock.

    `n` rows (variants times attempts) of `samples` samples; `aggregate`: AS, `interval`: its 95% bootstrap interval
    over samples, None below two samples; `at`: the chosen line of `table`, whose `alpha` is the geometric mean speedup
    of the variants correct there; `slower`: share of the variants with a time, accurate enough or not, that are slower
    than eager, None without times; `fast`: {p: share of all variants correct there and faster than p times eager}.
    """

    n: int
    samples: int
    aggregate: float
    interval: tuple[float, float] | None
    at: Level
    slower: float | None
    fast: dict[float, float]
    table: tuple[Level, ...]


def summarise(
    outcomes: Sequence[ScoredVariant], samples: Sequence[str], t: int = -5, p: float = 0.0, b: float = B
) -> Summary:
    """Scores of outcomes, `samples` naming the sample of each; `p` and `b` as in `passbench.score.speedup_score`.

    Raises ValueError without outcomes, ArithmeticError where two ways of computing a score disagree.
    """
    table = tuple(score_table(outcomes, p, b))
    logs = [log_score(o, p, b) for o in outcomes]
    timed = [o.speedup for o in outcomes if o.speedup is not None]
    return Summary(
        n=len(outcomes),
        samples=len(set(samples)),
        aggregate=aggregate_of(table, logs),
        interval=interval(logs, samples),
        at=next(line for line in table if line.t == t),
        slower=sum(s < 1 for s in timed) / len(timed) if timed else None,
        fast={bound: fast_p(outcomes, bound, t) for bound in FAST},
        table=table,
    )

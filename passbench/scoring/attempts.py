"""Several attempts at one sample: pass@k, and each sample's best attempt.

An attempt is one pass for a whole sample, so it is judged on all variants of the sample: it succeeds at level t if
every variant is correct at t. Variants on which eager failed are left out, as everywhere.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any

from passbench.score import B, log_score, outcome_of, pass_at_k, says_something

Row = Mapping[str, Any]


def pass_at(rows: Sequence[Row], t: int = -5, clock: str = "e2e") -> dict[int, float]:
    """pass@k of one run's rows of the results table at level t, for every k up to the attempts that all samples have.

    For a sample with n attempts of which c succeed, the unbiased estimator 1 - C(n-c, k)/C(n, k) (Chen et al.,
    Evaluating Large Language Models Trained on Code, 2021); the mean over samples. Empty without a sample to judge.
    """
    tallies = []
    for attempts in _by_attempt(rows).values():
        right = [all(outcome_of(row, clock).correct(t) for row in variants) for variants in attempts.values()]
        tallies.append((len(right), sum(right)))
    most = min((n for n, _ in tallies), default=0)
    return {k: sum(pass_at_k(n, c, k) for n, c in tallies) / len(tallies) for k in range(1, most + 1)}


def best_attempts(rows: Sequence[Row], p: float = 0.0, b: float = B) -> list[Row]:
    """Rows of each sample's best attempt: the one with the highest AS (e2e) over its variants, the first of equals.

    The best of the sample, not of each variant: a pass is submitted for all of them. Chosen on the times that are then
    reported, so it flatters where attempts differ by noise alone.
    """
    best = {}
    for key, attempts in _by_attempt(rows).items():
        scores = {n: _mean_log_score(variants, p, b) for n, variants in sorted(attempts.items())}
        best[key] = max(scores, key=scores.__getitem__)
    return [row for row in rows if best.get(_sample(row), row["attempt"]) == row["attempt"]]


def _mean_log_score(rows: Sequence[Row], p: float, b: float) -> float:
    return fsum(log_score(outcome_of(row), p, b) for row in rows) / len(rows)


def _sample(row: Row) -> tuple[str, str]:
    return row["run"], row["sample"]


def _by_attempt(rows: Sequence[Row]) -> dict[tuple[str, str], dict[int, list[Row]]]:
    """Rows that enter the scores, by run and sample, then by attempt."""
    found: dict[tuple[str, str], dict[int, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if says_something(row):
            found[_sample(row)][row["attempt"]].append(row)
    return found

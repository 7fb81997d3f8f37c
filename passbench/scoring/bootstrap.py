"""How sure an aggregate score is: a bootstrap interval over samples.

Percentile bootstrap of a mean of clusters (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13).
Samples are drawn, not variants: the variants of one sample are the same operators in other dtypes and shapes under one
pass, and rise and fall together.
"""

from collections.abc import Sequence

import numpy as np

RESAMPLES = 1000
COVERAGE = 0.95


def interval(
    logs: Sequence[float], samples: Sequence[str], resamples: int = RESAMPLES, coverage: float = COVERAGE, seed: int = 0
) -> tuple[float, float] | None:
    """Ends of the interval of exp(mean of `logs`), samples drawn with replacement; None below two samples.

    `logs`: one value a variant, `passbench.score.log_score` for AS; `samples`: the sample that each belongs to. The
    same seed gives the same interval, in whatever order the variants come.
    """
    names, members = np.unique(np.asarray(samples), return_inverse=True)
    if len(names) < 2:
        return None
    order = np.lexsort((logs, members))  # sums, too, must not depend on the order
    totals = np.bincount(members[order], np.asarray(logs, dtype=float)[order])
    counts = np.bincount(members)
    generator = np.random.default_rng(seed)
    means = np.empty(resamples)
    for number in range(resamples):  # a draw at a time: memory for one set of samples, however many resamples
        drawn = generator.integers(len(names), size=len(names))
        means[number] = totals[drawn].sum() / counts[drawn].sum()
    tail = (1 - coverage) / 2
    low, high = np.exp(np.quantile(means, [tail, 1 - tail]))
    return float(low), float(high)

"""Statistics of timed batches: medians, spread, noise (DESIGN section 5, Time)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from passbench.result import Timing

LEAST_US = 0.001  # an exchange can come out at or below the empty one on a CPU that does next to nothing


def per_call_us(exchange_ns: int, empty_ns: float, calls: int) -> float:
    """Microseconds a call of a batch: the exchange less an empty one, over its calls."""
    return max((exchange_ns - empty_ns) / calls / 1000, LEAST_US)


def median_iqr(values: Sequence[float]) -> tuple[float, float]:
    """Median and interquartile range."""
    low, middle, high = np.percentile(np.asarray(values, dtype=np.float64), (25, 50, 75))
    return float(middle), float(high - low)


@dataclass
class Round:
    """One round by one clock: microseconds a call of every batch, both sides."""

    calls: int = 0
    eager: list[float] = field(default_factory=list)
    candidate: list[float] = field(default_factory=list)

    def spread(self) -> float:
        """The larger IQR/median of the two sides."""
        sides = (median_iqr(self.eager), median_iqr(self.candidate))
        return max(iqr / median for median, iqr in sides)


def summarise(clock: str, rounds: Sequence[Round], noise: float) -> Timing:
    """The round with the least spread; `noisy` if even that is above `noise`."""
    best = min(rounds, key=Round.spread)
    (eager, eager_iqr), (candidate, candidate_iqr) = median_iqr(best.eager), median_iqr(best.candidate)
    return Timing(
        clock, eager, candidate, eager_iqr, candidate_iqr, best.calls, len(rounds) - 1, best.spread() > noise
    )  # fmt: skip

"""Statistics of timed exchanges: medians, spread, confidence (docs/design.md, "Time")."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from passbench.result import Timing

LEAST_US = 0.001  # an exchange can come out at or below its overhead on a CPU that does next to nothing
_RESAMPLES = 400
_FEW = 5  # pairs; fewer say nothing about how far they agree
_TIGHT = 0.5  # of the precision
_LARGEST_OVERHEAD = 0.5  # of an exchange; it nears that only where a handful of calls is timed, as on the CPU


@dataclass(frozen=True)
class Exchange:
    """One exchange of a side: `calls` calls took `total_us` by the parent's clock and, after the first, `host_us` each
    by the child's; 0 where the child did not time them."""

    calls: int
    total_us: float
    host_us: float = 0.0

    @property
    def overhead_us(self) -> float:
        """What the exchange took beside its calls at the pace of those after the first: messages, the switch of the GPU
        to this process, a first call with cold caches. To be believed of a side that has no interest in the time."""
        return self.total_us - self.calls * self.host_us

    def per_call_us(self, overhead_us: float) -> float:
        """Microseconds a call, by the parent's clock."""
        return max((self.total_us - overhead_us) / self.calls, LEAST_US)


@dataclass
class Pairs:
    """Exchanges by one clock, eager's and the candidate's on the same inputs.

    `empty_us`: what exchanges of eager's worker without any call took, where they were timed.
    """

    eager: list[Exchange] = field(default_factory=list)
    candidate: list[Exchange] = field(default_factory=list)
    empty_us: list[float] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """Calls of each side."""
        return sum(e.calls for e in self.eager)

    @property
    def overhead_us(self) -> float:
        """What an exchange takes beside its calls: the median of eager's worker, for a candidate could call anything
        overhead. The same is taken off both sides."""
        overhead = max(float(np.median(self.empty_us or [x.overhead_us for x in self.eager])), 0.0)
        return min(overhead, _LARGEST_OVERHEAD * min(x.total_us for x in (*self.eager, *self.candidate)))

    def per_call(self, trusted: bool = False) -> tuple[list[float], list[float]]:
        """Microseconds a call of every exchange, both sides, less the overhead.

        `trusted`: believe the candidate's own clock, to show what that would let through.
        """
        overhead = self.overhead_us
        eager, candidate = ([x.per_call_us(overhead) for x in side] for side in (self.eager, self.candidate))
        return (eager, [max(x.host_us, LEAST_US) for x in self.candidate]) if trusted else (eager, candidate)


def median_iqr(values: Sequence[float]) -> tuple[float, float]:
    """Median and interquartile range."""
    low, middle, high = np.percentile(np.asarray(values, dtype=np.float64), (25, 50, 75))
    return float(middle), float(high - low)


def speedup_interval(eager: Sequence[float], candidate: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of median(eager) / median(candidate), by bootstrap over pairs; seeded, so it is repeatable."""
    pairs = np.array((eager, candidate), dtype=np.float64)
    count = pairs.shape[1]
    drawn = np.sort(pairs[:, np.random.default_rng(0).integers(0, count, (_RESAMPLES, count))], axis=2)
    a, b = (drawn[..., (count - 1) // 2] + drawn[..., count // 2]) / 2  # medians; np.median takes twice as long
    low, high = np.percentile(a / b, (2.5, 97.5))
    return float(low), float(high)


def summarise(clock: str, pairs: Pairs, noise: float, repeats: int = 0, trusted: bool = False) -> Timing:
    """Medians over all exchanges; `noisy` if IQR/median is above `noise` on either side."""
    by_side = pairs.per_call(trusted)
    (eager, eager_iqr), (candidate, candidate_iqr) = map(median_iqr, by_side)
    low, high = speedup_interval(*by_side)
    noisy = max(eager_iqr / eager, candidate_iqr / candidate) > noise
    return Timing(
        clock, eager, candidate, eager_iqr, candidate_iqr, pairs.calls, repeats, noisy, low, high
    )  # fmt: skip


def settled(timing: Timing, precision: float) -> bool:
    """Whether more exchanges would add little: not noisy, and the speedup known to within `precision`."""
    wide = (timing.speedup_high - timing.speedup_low) / 2 / timing.speedup
    return not timing.noisy and wide <= precision


class Plan(NamedTuple):
    """How many pairs of exchanges to time: `wanted`; no fewer than `few`, where those agree very well; no more than
    `most`, where they are noisy."""

    few: int
    wanted: int
    most: int

    def repeats(self, done: int) -> int:
        """How often as many as were wanted have been begun on top."""
        return max(0, math.ceil(done / self.wanted) - 1)

    def will_do(self, timing: Timing, done: int, precision: float) -> bool:
        """Whether to stop after `done` pairs: the speedup is known to within `precision`, and twice as well before all
        that are wanted are there. To look after every pair costs little: what ends it is the width of an interval, not
        where it lies."""
        return settled(timing, precision * (_TIGHT if done < self.wanted else 1))


def planned(least: int, enough: int, affordable: int, repeats: int) -> Plan:
    """A plan for at least `least` pairs, and `enough` for the calls that are asked for; `affordable` in the time that
    there is; `repeats` times as many on top."""
    wanted = min(max(least, enough), affordable)
    return Plan(min(max(_FEW, enough), wanted), wanted, max(wanted, min((repeats + 1) * wanted, affordable)))

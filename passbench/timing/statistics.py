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
        """What the exchange took beside its calls: messages, the GPU's switch to this process, a first call with cold
        caches. It counts on the child's clock, so only eager's worker can be believed."""
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
        """What an exchange takes beside its calls: the median of eager's worker. The same is taken off both sides.

        A candidate's worker is not asked: it could call anything overhead.
        """
        overhead = max(float(np.median(self.empty_us or [x.overhead_us for x in self.eager])), 0.0)
        return min(overhead, _LARGEST_OVERHEAD * min(x.total_us for x in (*self.eager, *self.candidate)))

    def per_call(self, trusted: bool = False) -> tuple[list[float], list[float]]:
        """Microseconds a call of every exchange, both sides, less the overhead.

        `trusted`: believe the candidate's own clock. Only tests do, to show what that would let through.
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
    """Whether more exchanges would add little: times are not noisy, and the speedup is known to within `precision`."""
    wide = (timing.speedup_high - timing.speedup_low) / 2 / timing.speedup
    return not timing.noisy and wide <= precision


class Plan(NamedTuple):
    """How many pairs of exchanges to time: `wanted`, at least `few` if times agree well, at most `most` if noisy."""

    few: int
    wanted: int
    most: int

    def repeats(self, done: int) -> int:
        """How many times `wanted` pairs have been begun on top of the first `wanted`."""
        return max(0, math.ceil(done / self.wanted) - 1)

    def may_stop(self, timing: Timing, done: int, precision: float) -> bool:
        """Whether to stop after `done` pairs: the speedup is known to within `precision`.

        Before `wanted` pairs are done, it must be known twice as well. Asking after every pair biases the speedup
        little: the width of its interval ends the timing, not its value.
        """
        return settled(timing, precision * (_TIGHT if done < self.wanted else 1))


def planned(least: int, enough: int, affordable: int, repeats: int) -> Plan:
    """The plan for at least `least` pairs.

    `enough` pairs have the calls that are asked for. No more than `affordable` fit into the time. If times are noisy,
    `repeats` times as many are timed on top.
    """
    wanted = min(max(least, enough), affordable)
    return Plan(min(max(_FEW, enough), wanted), wanted, max(wanted, min((repeats + 1) * wanted, affordable)))

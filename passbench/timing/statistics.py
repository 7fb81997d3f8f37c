"""Statistics of timed exchanges: medians, spread, confidence (docs/design.md, "Time")."""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from passbench.result import Timing

LEAST_US = 0.001  # an exchange can come out at or below its overhead on a CPU that does next to nothing
_BEYOND = 0.025  # on either side of a 95% interval
_FEW = 6  # pairs; fewer have no 95% interval
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

    `empty_us`: what exchanges of eager's worker without any call took, where they were timed. `candidate_first`: the
    order of the latest pair.
    """

    eager: list[Exchange] = field(default_factory=list)
    candidate: list[Exchange] = field(default_factory=list)
    empty_us: list[float] = field(default_factory=list)
    candidate_first: bool = False

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


def paired_ratio(eager: Sequence[float], candidate: Sequence[float]) -> tuple[float, float, float]:
    """How many times as long eager takes as the candidate, from times in pairs, and the ends of its 95% interval.

    The ratio is the Hodges-Lehmann estimate: the median of the means of any two pairs' logarithms. What both sides of a
    pair have in common, such as a drift of the clocks, falls out, and a wild pair counts little. The interval is that
    of Wilcoxon's signed ranks. It holds the ratio in 95% of the cases if ratios are distributed symmetrically, normally
    or not. Fewer than six pairs have no such interval; theirs goes from the least ratio to the largest.
    """
    logs = np.log(np.asarray(eager, dtype=np.float64) / np.asarray(candidate, dtype=np.float64))
    rows, columns = np.triu_indices(len(logs))
    means = np.sort((logs[rows] + logs[columns]) / 2)
    beyond = _ranks_beyond(len(logs))
    low, middle, high = np.exp((means[beyond], np.median(means), means[-1 - beyond]))
    return float(middle), float(low), float(high)


@functools.cache
def _ranks_beyond(pairs: int) -> int:
    """How many of the sorted means of two pairs lie below the 95% interval, and as many above it."""
    ways = np.ones(1)  # of having a sum of ranks 0, 1, 2 …, as shares of all
    for rank in range(1, pairs + 1):
        ways = (np.pad(ways, (0, rank)) + np.pad(ways, (rank, 0))) / 2
    return max(0, int(np.searchsorted(np.cumsum(ways), _BEYOND, side="right")) - 1)


def summarise(clock: str, pairs: Pairs, noise: float, repeats: int = 0, trusted: bool = False) -> Timing:
    """The times of all exchanges; `noisy` if IQR/median is above `noise` on either side.

    Both times are medians, moved by the same factor towards or from each other so that they have the pairs' ratio.
    """
    by_side = pairs.per_call(trusted)
    (eager, eager_iqr), (candidate, candidate_iqr) = map(median_iqr, by_side)
    ratio, low, high = paired_ratio(*by_side)
    noisy = max(eager_iqr / eager, candidate_iqr / candidate) > noise
    between = math.sqrt(eager * candidate)
    eager, candidate = between * math.sqrt(ratio), between / math.sqrt(ratio)
    return Timing(
        clock, eager, candidate, eager_iqr, candidate_iqr, pairs.calls, repeats, noisy, low, high
    )  # fmt: skip


def settled(timing: Timing, precision: float) -> bool:
    """Whether more exchanges would add little: times are not noisy, and the speedup is known to within `precision`."""
    wide = (timing.speedup_high - timing.speedup_low) / 2 / timing.speedup
    return not timing.noisy and wide <= precision


class Plan(NamedTuple):
    """How many pairs of exchanges to time: `wanted`, at least `few` if times agree, at most `most` if they do not."""

    few: int
    wanted: int
    most: int

    def repeats(self, done: int) -> int:
        """How many times `wanted` pairs have been begun on top of the first `wanted`."""
        return max(0, math.ceil(done / self.wanted) - 1)


def planned(least: int, enough: int, affordable: int, repeats: int) -> Plan:
    """The plan for at least `least` pairs.

    `enough` pairs have the calls that are asked for. No more than `affordable` fit into the time. If times are noisy,
    `repeats` times as many are timed on top.
    """
    wanted = min(max(least, enough), affordable)
    return Plan(min(max(_FEW, enough), wanted), wanted, max(wanted, min((repeats + 1) * wanted, affordable)))

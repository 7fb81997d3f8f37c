"""Statistics of timed exchanges: times, speedups with intervals, spreads (docs/design.md, "Time")."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from passbench.result import Timing

LEAST_US = 0.001  # an exchange can come out at or below its overhead on a CPU that does next to nothing
_RESAMPLES = 400
_FEW = 12  # pairs; of fewer neither the fastest quarter nor the median says much
_LARGEST_OVERHEAD = 0.8  # of an exchange; sealed calls take so much beside a few large calls, or where they do nothing
_LARGEST_EMPTY = 0.9  # of an exchange; an exchange of no calls that was timed is no estimate
_PAIRS_AT_A_TIME = 4
_NO_VARIANCE = 1e-12
_DISTURBED = 1.1


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
        caches where none was rehearsed. It counts on the child's clock, so only eager's worker can be believed."""
        return self.total_us - self.calls * self.host_us

    def per_call_us(self, overhead_us: float) -> float:
        """Microseconds a call, by the parent's clock."""
        return max((self.total_us - overhead_us) / self.calls, LEAST_US)


@dataclass
class Pairs:
    """Exchanges by one clock, eager's and the candidate's on the same inputs.

    `empty_us`: what exchanges of eager's worker without any call took, where they were timed. `candidate_began`:
    whether the candidate was first in the first pair; None before that.
    """

    eager: list[Exchange] = field(default_factory=list)
    candidate: list[Exchange] = field(default_factory=list)
    empty_us: list[float] = field(default_factory=list)
    candidate_began: bool | None = None

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
        largest = _LARGEST_EMPTY if self.empty_us else _LARGEST_OVERHEAD
        return min(overhead, largest * min(x.total_us for x in (*self.eager, *self.candidate)))

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


def undisturbed(times: np.ndarray) -> np.ndarray:
    """The mean of the fastest quarter, of two at least, along the last axis.

    What disturbs a call (another program on the same core, an interrupt, a slower clock) makes it longer and never
    shorter. So the fastest exchanges say what the call takes, also where half of them were disturbed; their median says
    how often that was.
    """
    count = times.shape[-1]
    few = max(min(2, count), count // 4)
    return np.sort(times, axis=-1)[..., :few].mean(axis=-1)


def ratios(pairs: np.ndarray) -> np.ndarray:
    """Two estimates of the speedup from `pairs`, of shape (..., 2, pairs): the ratio of both sides' fastest quarters,
    and the median of the ratios of pairs. Shape (2, ...).

    The first holds where many exchanges were disturbed, one by one. The second holds where a disturbance, or a slower
    clock, lasts longer than a pair, and where some exchanges are shorter than they should be.
    """
    eager, candidate = np.moveaxis(pairs, -2, 0)
    return np.stack((undisturbed(eager) / undisturbed(candidate), np.median(eager / candidate, axis=-1)))


class Speedup(NamedTuple):
    """An estimate, and its 95% interval."""

    value: float
    low: float
    high: float


def speedup_of(eager: Sequence[float], candidate: Sequence[float]) -> Speedup:
    """The speedup, of paired times of both sides: the mean of the two `ratios`, weighted by how little each varies when
    pairs are drawn again (bootstrap); seeded, so it is repeatable."""
    pairs = np.array((eager, candidate), dtype=np.float64)
    count = pairs.shape[1]
    again = pairs[:, np.random.default_rng(0).integers(0, count, (_RESAMPLES, count))]
    resampled = np.log(ratios(np.moveaxis(again, 0, 1)))
    weights = 1 / (resampled.var(axis=1) + _NO_VARIANCE)
    weights /= weights.sum()
    low, high = np.percentile(weights @ resampled, (2.5, 97.5))
    return Speedup(*(math.exp(x) for x in (weights @ np.log(ratios(pairs)), low, high)))


def summarise(clock: str, pairs: Pairs, noise: float, repeats: int = 0, trusted: bool = False) -> Timing:
    """What calls take undisturbed; `noisy` if IQR/median of the exchanges is above `noise` on either side.

    The product of both sides' times is that of their fastest quarters, their ratio is `speedup_of`.
    """
    by_side = pairs.per_call(trusted)
    eager, candidate = (float(undisturbed(np.array(side))) for side in by_side)
    speedup = speedup_of(*by_side)
    middle = math.sqrt(eager * candidate)
    eager, candidate = middle * math.sqrt(speedup.value), middle / math.sqrt(speedup.value)
    spreads = [median_iqr(side) for side in by_side]
    (_, eager_iqr), (_, candidate_iqr) = spreads
    noisy = max(iqr / median for median, iqr in spreads) > noise
    return Timing(
        clock, eager, candidate, eager_iqr, candidate_iqr, pairs.calls, repeats, noisy, speedup.low, speedup.high
    )  # fmt: skip


def disturbed(pairs: Pairs) -> bool:
    """Whether most of the latest exchanges took clearly longer than the fastest ones of their side."""
    return any(
        np.median(side[-_PAIRS_AT_A_TIME:]) > _DISTURBED * undisturbed(np.array(side)) for side in pairs.per_call()
    )


def settled(timing: Timing, precision: float) -> bool:
    """Whether more exchanges would add little: times are not noisy, and the speedup is known to within `precision`."""
    wide = (timing.speedup_high - timing.speedup_low) / 2 / timing.speedup
    return not timing.noisy and wide <= precision


class Plan(NamedTuple):
    """How many pairs of exchanges to time: `wanted`, at least `few` if times agree, at most `most` if they do not."""

    few: int
    wanted: int
    most: int

    def looks(self, done: int) -> bool:
        """Whether to ask after `done` pairs if that is enough: not after each, for what asking takes."""
        return done == self.most or (done >= self.few and done % _PAIRS_AT_A_TIME == 0)

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

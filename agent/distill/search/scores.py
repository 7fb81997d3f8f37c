"""What measured passes are worth: how right, how fast, and which of two is better."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from passbench.result import VariantResult

LEVEL = -5
"""The tolerance level at which a pass must be right in every measured variant."""

EQUAL = -10
"""The level at which a pass gives eager's bits, or nearly so."""

UNSURE = EQUAL + 1
"""Stands for the level of a pass that is `EQUAL` in all draws, and rounds away what may be wrong in others."""

WRONG_LEVEL = 2
"""Stands for the level of a pass that is right at none."""

RISKS = {LEVEL: 0.25}
"""How likely a pass that is right at a level in the author's draws is wrong at `LEVEL` in PassBench's, where nothing is
known of the room that it left. Of 33 that were right at `LEVEL` and not one level further 8 were wrong
(`benchmarks/agent/h200_distill_350`)."""

RISK = 0.05
"""The same at the levels between."""

DRAWS = 64
"""So many draws more in which a pass is right make it half as likely wrong. Of 22 passes that 512 draws had found right
one was wrong in PassBench (`benchmarks/learning/checking/doubt.py`)."""

WRONG = 0.1
"""What counts in place of a speedup where a pass is wrong, as in PassBench's aggregate score."""

DEVICE_WEIGHT = 0.5
"""How much the device's clock counts in a search, beside the end-to-end clock. Beside other authors' work a quarter of
the second measurements of a pass differ from the first by more than 1.21 times end to end, and by 1.024 on the device
(2,862 pairs in `benchmarks/passbench/h100_table_276`). Of what its logs have of 150 fusible samples, this weight
chooses passes that are 1.9 % faster on the device and 0.8 % slower end to end than a weight of a quarter does."""

EVEN = 0.97
"""From this speedup on a pass is as fast as eager by a clock, but for the noise: its gain by the other one counts then.
`fusible-8afb015ec98a` had a pass of 1.75 end to end and 0.78 on the device (`benchmarks/passbench/h100_table_276`)."""

Choice = TypeVar("Choice", bound=Hashable)


def is_right(result: VariantResult) -> bool:
    """Whether a variant ran and is right at `LEVEL`."""
    return result.status == "ok" and result.t_min is not None and result.t_min <= LEVEL


@dataclass(frozen=True)
class Merit:
    """How good a measured pass is, and which of two is better.

    `score` is its `speedup`, 1.0 for doing nothing, 0.0 for a wrong pass. `device` is its speedup by the device's clock
    alone. Passes with equal `host`, where that is not None, cost the host the same: what their end-to-end times differ
    by beyond the device's is what else the host had to do, such as other authors' work.
    """

    score: float
    device: float | None = None
    host: Hashable = None

    def over(self, other: "Merit") -> float:
        """How many times as good this one is: by the device's clock where the host's costs are equal."""
        if not self.score or not other.score:
            return math.inf if self.score else 0.0
        if self.host is not None and self.host == other.host and self.device and other.device:
            return self.device / other.device
        return self.score / other.score

    def expected(self, level: int, wrong: float = 0.0, draws: int = 0, chance: float | None = None) -> "Merit":
        """What the pass is worth if it is right at this level in the author's draws; the rest is as in `expected`."""
        device = None if self.device is None else expected(self.device, level, wrong, draws, chance)
        return replace(self, score=expected(self.score, level, wrong, draws, chance), device=device)


def ranked(merits: Mapping[Choice, Merit]) -> list[Choice]:
    """The choices, the best first."""
    left, order = dict(merits), []
    while left:
        best = next(iter(left))
        for choice in left:
            if left[choice].over(left[best]) > 1.0:
                best = choice
        order.append(best)
        del left[best]
    return order


NOTHING = Merit(1.0)
"""Leaving a sample to eager."""


def e2e_speedup(results: Sequence[VariantResult]) -> float | None:
    """The geometric mean of the end-to-end speedups; None where one is missing."""
    return _mean([result.speedup("e2e") for result in results]) if results else None


def device_speedup(results: Sequence[VariantResult]) -> float | None:
    """The geometric mean of the speedups by the device's clock; None where one is missing."""
    return _mean([result.speedup("device") for result in results]) if results else None


def speedup(results: Sequence[VariantResult]) -> float | None:
    """How much faster the results are than eager; None where a variant failed or is wrong at `LEVEL`.

    It is the geometric mean of the end-to-end speedups. Where these lose nothing (`EVEN`), the device's count with a
    weight of `DEVICE_WEIGHT`: of two passes that the host bounds, the one with the better kernels is better, and one
    that costs the host what eager does is worth its kernels. A loss on the device counts fully, and where it is more
    than noise, it alone.
    """
    if not results or not all(map(is_right, results)):
        return None
    e2e = e2e_speedup(results)
    return None if e2e is None else weighed(e2e, device_speedup(results))


def weighed(e2e: float, device: float | None) -> float:
    """The speedups by both clocks as one: a gain by one of them is worth nothing beside a loss by the other."""
    if device is None or e2e < EVEN:
        return e2e
    if device < EVEN:
        return device
    if device < 1.0:
        return e2e * device
    return e2e ** (1.0 - DEVICE_WEIGHT) * device**DEVICE_WEIGHT


def _mean(speedups: Sequence[float | None]) -> float | None:
    """The geometric mean; None where one of them is missing."""
    if None in speedups:
        return None
    return math.exp(math.fsum(map(math.log, speedups)) / len(speedups))


def in_words(results: Sequence[VariantResult]) -> str:
    """The speedups by both clocks, or how right each variant is."""
    if speedup(results):
        e2e, device = (_mean([result.speedup(clock) for result in results]) for clock in ("e2e", "device"))
        beside = "".join(f"; {reason[:160]}" for reason in dict.fromkeys(r.reason for r in results) if reason)
        return f"{e2e:.3f} e2e" + (f", {device:.3f} on the device" if device else "") + beside
    said = [str(r.t_min) if r.status == "ok" else f"{r.status} {r.reason[:160]}".rstrip() for r in results]
    return f"no answer, {', '.join(said)}"


def expected(score: float, level: int, wrong: float = 0.0, draws: int = 0, chance: float | None = None) -> float:
    """What a pass of this speed is worth that is right at this level: the mean over being right and wrong, by the
    logarithm.

    `wrong` is the share of passes with the same regions and rounding that were wrong. One that differs from eager is
    as likely wrong as they are, at least: it was right in draws where they were not. It was right in so many `draws`
    more than it was measured on. `chance` is how likely it is wrong by the room that these have left, where that is
    known: then it is as likely wrong as this, or as passes of the levels between are, whatever its level.
    """
    if level <= EQUAL:
        return score
    risk = RISKS.get(level, RISK) if chance is None else RISK
    risk = max(max(risk, wrong) / (1.0 + draws / DRAWS), chance or 0.0)
    return score ** (1.0 - risk) * WRONG**risk

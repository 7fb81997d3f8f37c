"""Scores of a set of variants: S_t, ES_t, the aggregate score, fast_p and pass@k (docs/scores.md).

`level` and `aggregate_of` compute each score by the aggregate formula and over variants, and compare. What a run's page
shows beside them is in `passbench.scoring.summary`; attempts are in `passbench.scoring.attempts`.

Failures without an error code (no match, refused, timed out) are never tolerated: they count as incorrect at every t
with factor b. pi_c is the share of code c among *all* failures, so these make up what the three shares leave of 1,
and gamma_t = b^(sum_c pi_c [t < c] + (1 - sum_c pi_c)): they behave as errors of an infinite code. With that the
aggregate formula equals the geometric mean over variants exactly, and ES_t = S_t for t <= 0.

ES_t does not fall with t as long as every correct speedup, rectified, is at least b: a variant slower than that costs
less while it counts as wrong.

Variants on which eager itself failed say nothing about a pass and are left out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from passbench.conditions import conditions
from passbench.names import CLOCKS
from passbench.result import EAGER_FAILED, ERROR_CODES, NO_GRAPH_OF_CANDIDATE, NO_GRAPH_OF_EAGER

B = 0.1
"""What an incorrect sample counts as."""

LEVELS = range(-10, 5)
"""Levels t of a score table."""

CODES = (1, 2, 3)
_LAST_CORRECTNESS_LEVEL = 1  # for t >= 1 correctness is that at t = 1
_AGREEMENT = 1e-9

_WEIGHTS = {
    **dict.fromkeys(range(-10, -5), 0.001),
    **dict.fromkeys(range(-5, -2), 1.0),
    **{t: 0.8 ** (t + 3) for t in range(-2, 4)},
    4: 0.001,
}
"""Weights of the aggregate score by level, not normalised."""
_TOTAL_WEIGHT = math.fsum(_WEIGHTS.values())


@dataclass(frozen=True)
class ScoredVariant:
    """What scoring needs to know of one variant under one compiler by one clock.

    `speedup`: eager over candidate, None where it was not measured. `t_min`: smallest level at which it agrees with
    eager, None if it does at none. `error_code`: 1 accuracy, 2 runtime, 3 compilation; None: no error, or one that is
    never tolerated.
    """

    speedup: float | None
    t_min: int | None
    error_code: int | None = None

    def correct(self, t: int) -> bool:
        """Whether it ran and agrees with eager at level t."""
        return self.t_min is not None and self.speedup is not None and self.t_min <= min(t, _LAST_CORRECTNESS_LEVEL)

    def code(self, t: int) -> int | None:
        """The error code at a level at which it is not correct: 1 if it only is not accurate enough."""
        return 1 if self.t_min is not None and self.error_code is None else self.error_code


def speedup_score(alpha: float, beta: float, lam: float, eta: float, p: float = 0.0, b: float = B) -> float:
    """S_t = alpha^lam * beta^(lam * eta * p) * b^(1 - lam).

    `alpha`: geometric mean of correct speedups; `beta`: of those below 1; `lam`: fraction of samples that are correct;
    `eta`: fraction of those below 1; `p`: penalty of slowdowns; `b`: what an incorrect sample counts as.
    """
    return alpha**lam * beta ** (lam * eta * p) * b ** (1 - lam)


def error_aware_speedup_score(alpha: float, beta: float, lam: float, eta: float, gamma: float, p: float = 0.0) -> float:
    """ES_t = alpha^lam * beta^(lam * eta * p) * gamma^(1 - lam): `speedup_score` with gamma_t in place of b."""
    return speedup_score(alpha, beta, lam, eta, p, gamma)


def error_factor(pi: Sequence[float], t: int, b: float = B) -> float:
    """gamma_t from the shares of codes 1, 2, 3 among all failures; what they leave of 1 is never tolerated."""
    intolerable = max(0.0, 1.0 - sum(pi))
    return b ** (sum(share for code, share in zip(CODES, pi, strict=True) if t < code) + intolerable)


def rectified_speedup(outcome: ScoredVariant, t: int, p: float = 0.0, b: float = B) -> float:
    """One sample's factor of S_t: its speedup s if correct and s >= 1, s^(p + 1) if correct and s < 1, else b."""
    if not outcome.correct(t):
        return b
    s = outcome.speedup
    return s if s >= 1 else s ** (p + 1)


def error_aware_rectified_speedup(outcome: ScoredVariant, t: int, p: float = 0.0, b: float = B) -> float:
    """One sample's factor of ES_t: as `rectified_speedup`, but 1 for an error that level t tolerates."""
    code = outcome.code(t)
    if not outcome.correct(t) and code is not None and t >= code:
        return 1.0
    return rectified_speedup(outcome, t, p, b)


@dataclass(frozen=True)
class Level:
    """One line of the score table; names as in docs/scores.md."""

    t: int
    s_t: float
    es_t: float
    alpha: float
    beta: float
    lam: float
    eta: float
    gamma: float
    pi: tuple[float, float, float]
    n: int


def level(outcomes: Sequence[ScoredVariant], t: int, p: float = 0.0, b: float = B) -> Level:
    """Scores at one level, by the aggregate formulas and as geometric means over samples.

    Raises ValueError without outcomes, ArithmeticError if the two ways differ by more than 1e-9 relative: it names
    the score and both values.
    """
    n = len(outcomes)
    if n == 0:
        raise ValueError("a score needs at least one outcome")
    speedups = [o.speedup for o in outcomes if o.correct(t)]
    slow = [s for s in speedups if s < 1]
    failures = [o.code(t) for o in outcomes if not o.correct(t)]
    alpha, beta = geometric_mean(speedups), geometric_mean(slow)
    lam = len(speedups) / n
    eta = len(slow) / len(speedups) if speedups else 0.0
    pi = tuple(failures.count(code) / len(failures) if failures else 0.0 for code in CODES)
    gamma = error_factor(pi, t, b) if failures else b
    s_t = speedup_score(alpha, beta, lam, eta, p, b)
    es_t = error_aware_speedup_score(alpha, beta, lam, eta, gamma, p)
    _agree(f"S_{t}", s_t, geometric_mean([rectified_speedup(o, t, p, b) for o in outcomes]))
    _agree(f"ES_{t}", es_t, geometric_mean([error_aware_rectified_speedup(o, t, p, b) for o in outcomes]))
    return Level(t, s_t, es_t, alpha, beta, lam, eta, gamma, pi, n)


def _agree(name: str, aggregate: float, by_variant: float) -> None:
    if not math.isclose(aggregate, by_variant, rel_tol=_AGREEMENT):
        raise ArithmeticError(f"{name} is {aggregate!r} by the formula but {by_variant!r} over variants")


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive values; 1 of none."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else 1.0


def score_table(outcomes: Sequence[ScoredVariant], p: float = 0.0, b: float = B) -> list[Level]:
    """Scores at every level from -10 to 4."""
    return [level(outcomes, t, p, b) for t in LEVELS]


def aggregate(table: Iterable[Level]) -> float:
    """AS = exp(sum_t w_t ln ES_t), weights normalised to sum to 1 (docs/scores.md)."""
    return math.exp(math.fsum(_WEIGHTS[line.t] * math.log(line.es_t) for line in table) / _TOTAL_WEIGHT)


def log_score(outcome: ScoredVariant, p: float = 0.0, b: float = B) -> float:
    """One variant's part of ln AS, sum_t w_t ln(its factor of ES_t): ln AS is the mean of these over variants."""
    factors = [(_WEIGHTS[t], error_aware_rectified_speedup(outcome, t, p, b)) for t in LEVELS]
    return math.fsum(weight * math.log(factor) for weight, factor in factors) / _TOTAL_WEIGHT


def aggregate_of(table: Sequence[Level], logs: Sequence[float]) -> float:
    """AS by the table and by the variants' `log_score`s. Raises ArithmeticError, naming both, if they differ."""
    found = aggregate(table)
    _agree("AS", found, math.exp(math.fsum(logs) / len(logs)))
    return found


def fast_p(outcomes: Sequence[ScoredVariant], p: float = 1.0, t: int = -5) -> float:
    """Share of outcomes that are correct at level t and faster than p times eager."""
    return sum(o.correct(t) and o.speedup > p for o in outcomes) / len(outcomes)


def pass_at_k(attempts: int, correct: int, k: int) -> float:
    """Chance that k of `attempts` attempts, drawn without replacement, hold one of the `correct` ones.

    Raises ValueError unless 0 <= correct <= attempts and 1 <= k <= attempts.
    """
    if not (0 <= correct <= attempts and 1 <= k <= attempts):
        raise ValueError(f"pass@{k} of {correct} correct in {attempts} attempts is not defined")
    return 1.0 - math.comb(attempts - correct, k) / math.comb(attempts, k)


def says_something(row: Mapping[str, Any], clock: str = "e2e") -> bool:
    """Whether a row of the results table enters the scores by a clock: not where eager itself failed, nor by "device"
    where eager could not be captured and there is no other time."""
    if clock == "device" and row["speedup_device"] is None and _note(row).startswith(NO_GRAPH_OF_EAGER):
        return False
    return not (row["status"] == "runtime_error" and (row["reason"] or "").startswith(EAGER_FAILED))


def _note(row: Mapping[str, Any]) -> str:
    return row.get("device_note") or ""


def outcome_of(row: Mapping[str, Any], clock: str = "e2e") -> ScoredVariant:
    """The outcome of a row of the results table by clock "e2e" or "device".

    By "device", a pass that cannot be captured has failed: otherwise it could choose the variants that are timed.
    """
    if clock == "device" and row["speedup_device"] is None and _note(row).startswith(NO_GRAPH_OF_CANDIDATE):
        return ScoredVariant(None, None, ERROR_CODES["runtime_error"])
    return ScoredVariant(row[f"speedup_{clock}"], row["t_min"] if row["status"] == "ok" else None, row["error_code"])


def outcomes_of(rows: Iterable[Mapping[str, Any]], clock: str = "e2e") -> list[ScoredVariant]:
    """Outcomes of rows of the results table by a clock; every attempt counts, rows on which eager failed do not."""
    return [outcome_of(row, clock) for row in rows if says_something(row, clock)]


def is_measured(outcomes: Sequence[ScoredVariant], clock: str) -> bool:
    """Whether a clock can score these: each that agrees with eager has its time (on the CPU, "device" has none)."""
    if not outcomes or any(o.t_min is not None and o.speedup is None for o in outcomes):
        return False
    return clock != "device" or any(o.speedup is not None for o in outcomes)


def score_rows(rows: Sequence[Mapping[str, Any]], *, run: str, author: str, clock: str = "e2e") -> list[dict[str, Any]]:
    """Rows of `storage.schema.SCORES` for one run's rows of the results table by one clock, "e2e" or "device".

    Empty where nothing can be scored by that clock: no device times on the CPU, or eager failed on every variant.
    """
    outcomes = outcomes_of(rows, clock)
    if not is_measured(outcomes, clock):
        return []
    return table_rows(score_table(outcomes), rows, run=run, author=author, clock=clock)


def score_runs(runs: Iterable[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Rows of `storage.schema.SCORES` by every clock, for runs that are each given by their rows of results."""
    return [
        score
        for rows in runs
        for clock in CLOCKS
        for score in score_rows(rows, run=rows[0]["run"], author=rows[0]["author"], clock=clock)
    ]


def times_meaningful(rows: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a GPU measured all speedups of these rows of the results table."""
    return all(row["times_meaningful"] for row in rows if row["speedup_e2e"] is not None)


def table_rows(
    table: Sequence[Level], rows: Sequence[Mapping[str, Any]], *, run: str, author: str, clock: str
) -> list[dict[str, Any]]:
    """A score table as rows of `storage.schema.SCORES`; `rows` are the results that it was made of."""
    shared = {"run": run, "author": author, "clock": clock, "aggregate": aggregate(table)}
    shared |= {"times_meaningful": times_meaningful(rows), **conditions(rows, clock)._asdict()}
    return [{**shared, **vars(line), "pi": list(line.pi)} for line in table]


def aggregate_score(rows: Sequence[Mapping[str, Any]], clock: str = "e2e") -> float | None:
    """AS of rows of the results table by one clock, None where nothing can be scored by it."""
    outcomes = outcomes_of(rows, clock)
    return aggregate(score_table(outcomes)) if is_measured(outcomes, clock) else None

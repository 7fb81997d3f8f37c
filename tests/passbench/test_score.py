import math
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from passbench.score import (
    CODES,
    LEVELS,
    B,
    ScoredVariant,
    aggregate,
    aggregate_of,
    aggregate_score,
    error_aware_rectified_speedup,
    error_aware_speedup_score,
    error_factor,
    fast_p,
    geometric_mean,
    level,
    log_score,
    outcome_of,
    outcomes_of,
    pass_at_k,
    rectified_speedup,
    says_something,
    score_rows,
    score_table,
    speedup_score,
)
from storage.schema import SCORES

SPEEDUPS = st.floats(0.01, 100)
OUTCOMES = st.one_of(
    st.builds(ScoredVariant, SPEEDUPS, st.integers(-10, 1)),
    st.builds(ScoredVariant, st.none(), st.none(), st.sampled_from([*CODES, None])),
)
SETS = st.lists(OUTCOMES, min_size=1, max_size=40)


@given(SETS, st.sampled_from(LEVELS), st.floats(0, 2), st.floats(0.01, 1))
def test_both_ways_of_computing_agree(outcomes, t, p, b):
    line = level(outcomes, t, p, b)  # raises if they do not
    assert line.s_t == pytest.approx(geometric_mean([rectified_speedup(o, t, p, b) for o in outcomes]))
    assert line.es_t == pytest.approx(geometric_mean([error_aware_rectified_speedup(o, t, p, b) for o in outcomes]))


@given(SETS, st.floats(0, 2))
def test_es_is_s_without_tolerance_and_never_falls_with_t(outcomes, p):
    table = score_table(outcomes, p)
    assert [line.t for line in table] == list(LEVELS)
    for line in table:
        if line.t <= 0:
            assert line.es_t == pytest.approx(line.s_t)
        assert line.es_t >= line.s_t * (1 - 1e-12)
        assert 0 <= line.lam <= 1 and 0 <= line.eta <= 1 and sum(line.pi) <= 1 + 1e-12
        assert B <= line.gamma * (1 + 1e-12) <= 1 + 1e-9
    assert [line.lam for line in table] == sorted(line.lam for line in table)


@given(st.lists(SPEEDUPS, min_size=1, max_size=20))
def test_with_everything_correct_the_score_is_the_geometric_mean(speedups):
    outcomes = [ScoredVariant(s, -10) for s in speedups]
    for line in score_table(outcomes):
        assert line.s_t == pytest.approx(geometric_mean(speedups))
    assert aggregate(score_table(outcomes)) == pytest.approx(geometric_mean(speedups))


@given(st.lists(SPEEDUPS, min_size=1, max_size=20), st.sampled_from(LEVELS), st.floats(0, 2))
def test_with_everything_correct_es_is_alpha_times_the_penalty(speedups, t, p):
    line = level([ScoredVariant(s, -10) for s in speedups], t, p)
    slow = [s for s in speedups if s < 1]
    assert line.lam == 1
    assert line.eta == len(slow) / len(speedups)
    assert line.es_t == pytest.approx(line.alpha * line.beta ** (line.eta * p))


@given(SETS, st.sampled_from(LEVELS), st.floats(0.01, 1))
def test_without_a_penalty_beta_does_not_count(outcomes, t, b):
    line = level(outcomes, t, 0.0, b)
    for beta in (0.001, 1.0, line.beta):
        assert speedup_score(line.alpha, beta, line.lam, line.eta, 0.0, b) == line.s_t


@given(SETS, st.sampled_from(LEVELS), st.floats(0.1, 10))
def test_scaling_every_speedup_scales_the_score_by_the_share_that_is_correct(outcomes, t, factor):
    faster = [ScoredVariant(o.speedup and o.speedup * factor, o.t_min, o.error_code) for o in outcomes]
    before, after = level(outcomes, t), level(faster, t)
    assert after.s_t == pytest.approx(before.s_t * factor**before.lam)
    assert after.es_t == pytest.approx(before.es_t * factor**before.lam)


@given(SETS.flatmap(lambda outcomes: st.tuples(st.just(outcomes), st.permutations(outcomes))), st.floats(0, 2))
def test_the_order_of_variants_does_not_count(both, p):
    for line, shuffled in zip(*(score_table(outcomes, p) for outcomes in both), strict=True):
        assert vars(line) == pytest.approx(vars(shuffled) | {"pi": pytest.approx(shuffled.pi)})


@given(SETS, st.floats(0, 2))
def test_as_lies_among_the_scores_it_is_made_of_and_is_the_mean_over_variants(outcomes, p):
    table = score_table(outcomes, p)
    scores = [line.es_t for line in table]
    assert min(scores) * (1 - 1e-12) <= aggregate(table) <= max(scores) * (1 + 1e-12)
    assert aggregate_of(table, [log_score(o, p) for o in outcomes]) == aggregate(table)


@given(
    st.lists(st.one_of(OUTCOMES, st.builds(ScoredVariant, st.floats(0.5, 9), st.integers(-10, 1))), min_size=1),
    st.floats(0, 2),
)
def test_scores_rise_with_t_where_being_correct_beats_b(outcomes, p):
    b = min([0.1, *(o.speedup ** (p + 1) for o in outcomes if o.speedup)])
    table = score_table(outcomes, p, b)
    for name in ("s_t", "es_t"):
        scores = [getattr(line, name) for line in table]
        assert all(low <= high * (1 + 1e-9) for low, high in pairwise(scores)), name


def test_a_variant_slower_than_b_costs_less_while_it_counts_as_wrong():
    outcomes = [ScoredVariant(0.05, 0)]
    assert level(outcomes, -1).es_t == pytest.approx(0.1)
    assert level(outcomes, 0).es_t == pytest.approx(0.05)


def test_above_1_correctness_is_that_at_1():
    assert [ScoredVariant(2.0, 1).correct(t) for t in (0, 1, 4)] == [False, True, True]
    assert not ScoredVariant(2.0, 2).correct(4)


def test_scores_that_disagree_are_named():
    table = score_table([ScoredVariant(2.0, -10)])
    with pytest.raises(ArithmeticError, match=r"AS is 2\.0.* by the formula but 1\.0 over variants"):
        aggregate_of(table, [0.0])


@given(SETS, st.sampled_from(LEVELS))
def test_a_larger_penalty_never_helps(outcomes, t):
    assert level(outcomes, t, p=1).s_t <= level(outcomes, t, p=0).s_t * (1 + 1e-12)
    assert level(outcomes, t, b=0.05).s_t <= level(outcomes, t, b=0.1).s_t * (1 + 1e-12)


def test_by_hand():
    outcomes = [
        ScoredVariant(2.0, -5),
        ScoredVariant(0.5, -3),
        ScoredVariant(None, None, 2),
        ScoredVariant(None, None, None),
    ]
    line = level(outcomes, -5)
    assert (line.alpha, line.beta, line.lam, line.eta) == (2.0, 1.0, 0.25, 0.0)
    assert line.pi == (1 / 3, 1 / 3, 0.0)  # not accurate enough at -5; crashed; the third has no code
    assert line.s_t == pytest.approx((2 * 0.1 * 0.1 * 0.1) ** 0.25)
    line = level(outcomes, 2, p=1)
    assert (line.lam, line.eta, line.pi) == (0.5, 0.5, (0.0, 0.5, 0.0))
    assert line.gamma == pytest.approx(0.1**0.5)  # the crash is tolerated at 2, what has no code never is
    assert line.es_t == pytest.approx((2 * 0.5**2 * 1 * 0.1) ** 0.25)


def test_never_tolerated_failures_count_at_every_level():
    for line in score_table([ScoredVariant(None, None, None), ScoredVariant(1.0, -10)]):
        assert line.es_t == pytest.approx(0.1**0.5)
    assert score_table([ScoredVariant(None, None, 3)])[-1].es_t == 1.0


def test_public_formulas():
    assert speedup_score(2.0, 0.5, 0.5, 0.5, 1.0, 0.1) == pytest.approx(2**0.5 * 0.5**0.25 * 0.1**0.5)
    assert error_aware_speedup_score(2.0, 0.5, 0.5, 0.5, 1.0, 1.0) == pytest.approx(2**0.5 * 0.5**0.25)
    assert error_factor((0.5, 0.25, 0.25), 1) == pytest.approx(0.1**0.5)
    assert error_factor((0.0, 0.0, 0.0), 4) == pytest.approx(0.1)


def test_aggregate_weights():
    ones = score_table([ScoredVariant(1.0, -10)])
    assert aggregate(ones) == pytest.approx(1.0)
    total = 0.001 * 6 + 3 + sum(0.8**k for k in range(1, 7))
    only_at_1 = score_table([ScoredVariant(1.0, 1)])  # 0.1 below level 1, by weight
    below = 0.001 * 5 + 3 + 0.8 + 0.64 + 0.512
    assert aggregate(only_at_1) == pytest.approx(math.exp(math.log(0.1) * below / total))


def test_fast_p_and_pass_at_k():
    outcomes = [ScoredVariant(2.0, -5), ScoredVariant(1.1, -5), ScoredVariant(3.0, 0), ScoredVariant(None, None, 1)]
    assert fast_p(outcomes) == 0.5
    assert fast_p(outcomes, p=1.5, t=0) == 0.5
    assert pass_at_k(5, 0, 3) == 0.0
    assert pass_at_k(5, 5, 1) == 1.0
    assert pass_at_k(4, 1, 2) == pytest.approx(0.5)
    with pytest.raises(ValueError):
        pass_at_k(2, 1, 3)


def row(status: str, **changes: object) -> dict:
    return {"status": status, "reason": "", "t_min": None, "error_code": None, "author": "a"} | {
        "speedup_e2e": None,
        "speedup_device": None,
        "times_meaningful": True,
        **changes,
    }


def test_score_rows_have_the_schema_and_leave_out_what_eager_cannot_do():
    rows = [
        row("ok", t_min=-7, speedup_e2e=2.0),
        row("runtime_error", reason="eager failed: no such kernel"),
        row("rejected"),
    ]
    scores = score_rows(rows, run="r", author="a", clock="e2e")
    table = pa.Table.from_pylist(scores, SCORES)
    assert table.num_rows == len(LEVELS)
    assert {s["n"] for s in scores} == {2}
    assert scores[0].keys() == set(SCORES.names)
    assert scores[0]["aggregate"] == aggregate_score(rows)
    assert score_rows(rows, run="r", author="a", clock="device") == []
    assert score_rows(rows[1:2], run="r", author="a") == []
    assert aggregate_score(rows[1:2]) is None


@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n))))
def test_pass_at_k_rises_with_k_from_the_fraction_that_succeeds(attempts):
    n, correct = attempts
    chances = [pass_at_k(n, correct, k) for k in range(1, n + 1)]
    assert chances[0] == pytest.approx(correct / n)
    assert chances == sorted(chances)
    assert chances[-1] == (1.0 if correct else 0.0)


def test_a_pass_that_cannot_be_captured_has_failed_by_the_device_clock():
    rows = [
        row("ok", t_min=-7, speedup_e2e=2.0, speedup_device=3.0, device_note=""),
        row("ok", t_min=-7, speedup_e2e=2.0, device_note="no CUDA graph of the candidate: RuntimeError"),
        row("ok", t_min=-7, speedup_e2e=2.0, device_note="no CUDA graph of eager: RuntimeError"),
    ]
    assert [outcome_of(r).correct(-5) for r in rows] == [True] * 3
    assert [(o.correct(-5), o.error_code) for o in outcomes_of(rows, "device")] == [(True, None), (False, 2)]
    assert {s["n"] for s in score_rows(rows, run="r", author="a", clock="device")} == {2}
    assert aggregate_score(rows, "device") < aggregate_score(rows[:1], "device") == pytest.approx(3.0, rel=0.01)
    assert not says_something(rows[2], "device") and says_something(rows[2])


def test_only_a_failure_of_eager_says_nothing():
    assert says_something(row("runtime_error", reason="illegal address", error_code=2))
    assert says_something(row("rejected", reason=None))
    assert not says_something(row("runtime_error", reason="eager failed: no such kernel"))

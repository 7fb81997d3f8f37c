"""Scores of one set of results worked out by hand, with a pocket calculator's logarithms and none of our code.

Ten variants, one of each status and more of "ok"; b = 0.1, p = 0. An eleventh, on which eager fails, does not count.

    A  ok, t_min -10, s = 2       log10 s = +0.30103
    B  ok, t_min  -5, s = 0.5     log10 s = -0.30103
    C  ok, t_min   0, s = 4       log10 s = +0.60206
    D  ok, t_min   1, s = 0.8     log10 s = -0.09691
    E  wrong (code 1)   F  runtime_error (code 2)   G  compile_error (code 3)
    H  no_match         I  rejected                 J  timeout                    no code: never tolerated

The score is 10^(sum of log10 of the ten factors / 10). An incorrect variant's factor is 0.1 (log10 = -1), in ES_t from
t = code on 1 (log10 = 0).

    t      correct  sum of log10, S_t                             S_t                  ES_t
    -10    A        0.30103 - 9                      = -8.69897   10^-0.869897 = 0.135 the same
     -5    A B      0.30103 - 0.30103 - 8            = -8.00000   10^-0.800000 = 0.158 the same
      0    A B C    0.60206 - 7                      = -6.39794   10^-0.639794 = 0.229 the same
      1    A B C D  0.60206 - 0.09691 - 6            = -5.49485   10^-0.549485 = 0.282 E: -4.49485, 0.355
      2    as at 1                                                               0.282 E F: -3.49485, 0.447
      3    as at 1                                                               0.282 E F G: -2.49485, 0.563
      4    as at 1                                                               0.282 E F G: -2.49485, 0.563

AS: weights times -log10 ES_t. From -10 to -6 only A is correct, from -5 to -1 A and B.

    t = -10...-6   5 x 0.001 = 0.005                     x 0.869897 = 0.004349
    t = -5...-1    3 + 0.8 + 0.64 = 4.44                 x 0.8      = 3.552000
    t = 0          0.512                                 x 0.639794 = 0.327575
    t = 1          0.4096                                x 0.449485 = 0.184109
    t = 2          0.32768                               x 0.349485 = 0.114519
    t = 3          0.262144                              x 0.249485 = 0.065401
    t = 4          0.001                                 x 0.249485 = 0.000249
    sums           5.957424                                           4.248202

    AS = 10^-(4.248202 / 5.957424) = 10^-0.713094 = 0.194
"""

import pytest

from passbench.score import aggregate, level, outcomes_of, score_table

STATUSES = {
    "A": ("ok", None, -10, 2.0),
    "B": ("ok", None, -5, 0.5),
    "C": ("ok", None, 0, 4.0),
    "D": ("ok", None, 1, 0.8),
    "E": ("wrong", 1, None, None),
    "F": ("runtime_error", 2, None, None),
    "G": ("compile_error", 3, None, None),
    "H": ("no_match", None, None, None),
    "I": ("rejected", None, None, None),
    "J": ("timeout", None, None, None),
    "eager": ("runtime_error", None, None, None),
}
ROWS = [
    {
        "status": status,
        "reason": "eager failed: out of memory" if name == "eager" else "",
        "error_code": code,
        "t_min": t_min,
        "speedup_e2e": speedup,
    }
    for name, (status, code, t_min, speedup) in STATUSES.items()
]
S = {-10: 0.135, -5: 0.158, 0: 0.229, 1: 0.282, 2: 0.282, 3: 0.282, 4: 0.282}
ES = {-10: 0.135, -5: 0.158, 0: 0.229, 1: 0.355, 2: 0.447, 3: 0.563, 4: 0.563}


@pytest.fixture
def outcomes():
    return outcomes_of(ROWS)


@pytest.mark.parametrize("t", S)
def test_scores_by_level(outcomes, t):
    line = level(outcomes, t)
    assert line.n == 10
    assert (round(line.s_t, 3), round(line.es_t, 3)) == (S[t], ES[t])


def test_aggregate_score(outcomes):
    assert round(aggregate(score_table(outcomes)), 3) == 0.194


def test_shares_at_minus_5(outcomes):
    """Eight failures: C, D and E are of code 1, F of 2, G of 3, three have no code. alpha = sqrt(2 x 0.5) = 1."""
    line = level(outcomes, -5)
    assert line.pi == (3 / 8, 1 / 8, 1 / 8)
    assert (line.lam, line.eta) == (0.2, 0.5)
    assert (line.alpha, line.beta, line.gamma) == pytest.approx((1.0, 0.5, 0.1))


def test_gamma_keeps_failures_without_code_at_b(outcomes):
    """Six failures at t = 1: E, F, G a sixth each, three without code. gamma_1 = 0.1^(1/6 + 1/6 + 3/6) = 0.147.

    With shares among the three that have a code, gamma_1 would be 0.1^(2/3) = 0.215, and with 0.6 of the variants
    failing ES_1 = 10^(0.50515/10) x 0.215^0.6 = 0.447, not the geometric mean over variants, 0.355.
    """
    line = level(outcomes, 1)
    assert line.pi == (1 / 6, 1 / 6, 1 / 6)
    assert round(line.gamma, 3) == 0.147
    assert round(level(outcomes, 4).gamma, 3) == 0.316  # 0.1^(3/6)


def test_with_a_penalty_of_1(outcomes):
    """Slow correct variants count squared: -0.30103 for B at t = -5, and -0.09691 more for D at t = 2.

    t = -5: -8.30103, S = 10^-0.830103 = 0.148. t = 2: ES: -3.49485 - 0.39794 = -3.89279, 10^-0.389279 = 0.408.
    """
    assert round(level(outcomes, -5, p=1).s_t, 3) == 0.148
    assert round(level(outcomes, 2, p=1).es_t, 3) == 0.408

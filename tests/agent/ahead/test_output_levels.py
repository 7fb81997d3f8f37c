"""Levels of outputs beside those at which eager agrees with itself."""

import pytest
import torch

from agent.ahead.output_levels import beside_eager, counted, levels_of, varies, worst
from passbench.result import VariantResult


def test_each_output_has_a_level_of_its_own():
    ones = torch.ones(5)
    levels = levels_of([ones, ones + 1e-3, ones + 1e6], [ones] * 3)
    assert levels[0] == -10 and -5 < levels[1] <= -2 and levels[2] is None


def test_the_worst_level_is_none_where_nothing_agrees():
    assert (worst([]), worst([-10, -3]), worst([-10, None])) == (-10, -3, None)


@pytest.mark.parametrize(
    ("levels", "own", "expected"),
    [
        ([-2, -7], [-2, -10], [-10, -7]),
        ([-1, -10], [-2, -10], [-1, -10]),
        ([-10, -2], [-2, -10], [-10, -2]),
        ([-6, -2], [-5, -2], [-6, -10]),
        ([1, None], [None, None], [1, None]),
    ],
    ids=["as near", "farther", "another output", "right at -5", "eager at no level"],
)
def test_an_output_counts_as_equal_that_is_as_near_to_a_varying_eager_as_eager(levels, own, expected):
    assert beside_eager(levels, own) == expected


def test_eager_varies_where_it_is_not_right_at_the_level_of_passbench():
    assert [varies(level) for level in (-10, -5, -4, None)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("levels", "own", "status", "expected"),
    [
        ({0: 0, 1: -6}, {0: 0}, "ok", -6),
        ({0: 0, 2: -2}, {0: 0}, "ok", -2),
        ({0: 0}, {0: -3}, "ok", 0),
        ({0: 0}, {}, "ok", 0),
        ({0: 0}, {0: 0}, "wrong", 0),
    ],
    ids=["as near", "another output is wrong", "farther", "eager repeats it", "failed later"],
)
def test_a_search_counts_what_passbench_says_of_each_output(levels, own, status, expected):
    result = VariantResult("s", "fusible", "v", "pass", status, t_min=0, levels=levels, levels_eager=own)
    assert counted(result).t_min == expected

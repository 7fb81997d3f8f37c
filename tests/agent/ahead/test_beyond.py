"""How likely one of PassBench's draws is beyond what is allowed, by an author's draws."""

import math
import random

import pytest

from agent.ahead.beyond import JUDGED, chance_beyond


def _drawn(count, scale, seed):
    """Largest shares that lie above 0 by an exponential distribution."""
    draw = random.Random(seed)
    return [draw.expovariate(1.0 / scale) for _ in range(count)]


@pytest.mark.parametrize(("scale", "low", "high"), [(0.04, 0.0, 0.001), (0.2, 0.9, 1.0)])
def test_the_shares_of_few_draws_tell_how_far_those_of_many_go(scale, low, high):
    assert low <= -math.expm1(JUDGED * math.log1p(-math.exp(-1.0 / scale))) <= high
    found = [chance_beyond(shares) for seed in range(20) if max(shares := _drawn(96, scale, seed)) < 1.0]
    assert found and low <= sorted(found)[len(found) // 2] <= high


def test_the_estimate_errs_towards_doubt():
    true = -math.expm1(JUDGED * math.log1p(-math.exp(-10.0)))
    found = sorted(chance_beyond(_drawn(256, 0.1, seed)) for seed in range(100))
    assert found[25] > 0.5 * true and true < found[50] < 6.0 * true


def test_what_is_alike_leaves_no_doubt_and_what_is_beyond_no_hope():
    assert chance_beyond([0.9] * 64) == 0.0
    assert chance_beyond([0.0] * 64) == 0.0
    assert chance_beyond([0.2] * 63 + [1.1]) == 1.0


def test_few_draws_and_unknown_shares_say_nothing():
    assert chance_beyond([0.1] * 47) is None
    assert chance_beyond([0.1] * 63 + [math.nan]) is None

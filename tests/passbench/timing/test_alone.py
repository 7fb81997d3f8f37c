"""Calls made alone beside those of full exchanges."""

import random

import pytest

from passbench.bench import Bench
from passbench.result import Timing
from passbench.timing.alone import excess, refusal
from passbench.timing.statistics import Exchange, Pairs
from tests.passbench.attacks.run_attacks import SETTINGS
from tests.passbench.samples import PASSES, add_relu_sample


def timing(eager, candidate):
    return Timing("e2e", eager, candidate, 0.0, 0.0, 100, 0, False, 1.0, 1.0)


def exchanges(eager, candidate):
    return Pairs(*([Exchange(1, us) for us in side] for side in (eager, candidate)))


def test_a_call_that_takes_its_time_alone_only_is_found_out():
    # 400 us of work, of which a pass that gathers 64 calls shows 10 us each
    found = excess(exchanges([430, 420, 425], [433, 425, 435]), timing(400, 10))
    assert found == "alone: a call takes 405 us alone and 10 us among others"


@pytest.mark.parametrize(
    ("eager", "candidate", "together"),
    [
        ([60, 50, 55], [45, 60, 38], (30, 15)),  # beside the calls 25 us
        ([60, 50, 55], [190, 120, 150], (30, 15)),  # a host that has slept, and cold caches
        ([2060, 2050, 2055], [1600, 1500, 1020], (2000, 900)),  # long calls vary by less than half
        ([20, 20, 20], [130, 140, 120], (90, 40)),  # eager is faster alone
        ([300, 250, 900], [1258, 1490, 480], (150, 162)),  # on a busy host all calls but one are long
    ],
)
def test_what_an_honest_pass_may_take(eager, candidate, together):
    assert not excess(exchanges(eager, candidate), timing(*together))


def judged(added, eager, candidate, together):
    """Whether a candidate is refused if calls take these times and what is `added`."""
    pairs = Pairs()

    def ask(pause):
        for _ in range(5):
            pairs.eager.append(Exchange(1, eager + added()))
            pairs.candidate.append(Exchange(1, candidate + added()))

    ask(0.0)
    return refusal(pairs, timing(*together), ask)


def test_a_busy_gpu_refuses_nobody_and_a_pass_that_gathers_is_refused_still():
    """Every call waits for the slices of several other processes; the fastest of 25 said nothing there."""
    rng = random.Random(0)
    waits = lambda: 60 + rng.gammavariate(3, 1500)  # noqa: E731
    assert not any(judged(waits, 270, 195, (270, 195)) for _ in range(100))
    assert not any(judged(waits, 1650, 501, (1650, 501)) for _ in range(100))
    assert sum(bool(judged(waits, 6000, 6000, (6000, 50))) for _ in range(100)) == 100


def test_eagers_shortest_calls_tell_work_that_is_little_beside_disturbances():
    """0.4 ms of work of which 50 us show among others, and disturbances of a millisecond. Without work of its own
    nobody is refused."""
    rng = random.Random(0)
    waits = lambda: 40 + rng.expovariate(1 / 1000)  # noqa: E731
    assert sum(bool(judged(waits, 300, 450, (300, 50))) for _ in range(100)) > 60
    assert not any(judged(waits, 300, 180, (300, 50)) for _ in range(100))
    assert not any(judged(waits, 1500, 180, (2000, 50)) for _ in range(100)), "eager is faster alone"


def test_what_disturbed_the_first_calls_is_over_later():
    waits = iter([40.0, 4000.0] * 15)
    assert not judged(lambda: next(waits, 40.0), 600, 500, (600, 500))


def test_on_a_quiet_gpu_a_pass_that_gathers_is_refused_for_little():
    rng = random.Random(0)
    assert judged(lambda: rng.uniform(30, 60), 400, 400, (400, 10)).startswith("alone: a call takes ")


def test_calls_made_alone_are_compared_like_others():
    """A pass whose every call counts in an exchange is drawn for, called and compared."""
    with Bench("cpu", SETTINGS["cpu"]) as bench:
        (result,) = bench.run(add_relu_sample((3, 40)), "pass", PASSES / "add_relu")
        (plain,) = bench.run(add_relu_sample((3, 40)), "eager")
    assert (result.status, result.t_min) == ("ok", -10)
    assert plain.status == "ok"
    assert {"draw", "eager Go", "candidate Go", "compare", "check inputs"} <= result.phases.keys()
    assert 0 < sum(result.phases.values()) < result.seconds

"""Times that other processes disturb."""

import pytest
import torch

from agent.ahead import side_times
from agent.ahead.side_times import settled
from tests.agent.ahead.simulated_gpu import SimulatedGpu

QUIET, CROWDED = {"eager": 24.0, "candidate": 9.0}, {"eager": 510.0, "candidate": 505.0}


def test_two_tries_that_agree_are_enough():
    assert not settled("e2e", [QUIET], [])
    assert settled("e2e", [QUIET, {"eager": 25.0, "candidate": 9.5}], [])
    assert settled("e2e", [CROWDED, QUIET, QUIET], [24.0])


def test_a_side_that_took_longer_is_timed_again():
    assert not settled("e2e", [QUIET, CROWDED], [])
    assert not settled("e2e", [QUIET, QUIET | {"candidate": 12.0}], [])


def test_two_disturbed_tries_differ_from_what_eager_took_earlier():
    assert settled("e2e", [CROWDED, CROWDED], [])
    assert not settled("e2e", [CROWDED, CROWDED], [24.0])


def test_after_many_tries_the_best_counts():
    assert settled("e2e", [CROWDED] * 6, [24.0])


def test_the_devices_clock_is_held_to_less():
    once, twice = {"eager": 10.0, "candidate": 5.0}, {"eager": 10.8, "candidate": 5.0}
    assert settled("e2e", [once, twice], []) and not settled("device", [once, twice], [])


def test_what_eager_took_is_kept_by_clock():
    earlier = {}
    times = side_times.side_times({"eager": torch.relu, "candidate": torch.abs}, lambda n: [(torch.ones(4),)] * n,
                       torch.device("cpu"), earlier)  # fmt: skip
    assert [t.clock for t in times.timings] == ["e2e"]
    assert earlier == {"e2e": [times.timings[0].eager_us]}


def test_eager_took_what_it_took_when_least_was_going_on():
    earlier = {"e2e": [0.001, 99.0]}
    (timing,) = side_times.side_times({"eager": torch.relu, "candidate": torch.abs}, lambda n: [(torch.ones(4),)] * n,
                                      torch.device("cpu"), earlier).timings  # fmt: skip
    assert timing.eager_us == 0.001 and timing.speedup == 0.001 / timing.candidate_us
    assert earlier == {"e2e": [0.001, 99.0, 0.001]}


@pytest.mark.parametrize(
    ("delays", "in_time"),
    [((), True), ((400.0, 400.0), True), ((90_000.0,) * 99, False)],
    ids=["undisturbed", "twice late", "never in time"],
)
def test_the_device_is_not_charged_with_a_host_that_is_late(delays, in_time, monkeypatch):
    """A call takes the host 20 us and the GPU 5; other processes delay the host in some calls."""
    gpu, left = SimulatedGpu(monkeypatch), list(delays)
    calls = 1 if left else 4
    took = side_times._on_device(
        lambda: gpu.call(20.0 + (left.pop() if left else 0.0), 5.0), lambda n: [()] * n, calls, 25.0
    )
    assert took == pytest.approx(5.0) if in_time else took > 50_000.0

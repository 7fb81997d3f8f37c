import os
import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from passbench.settings import Settings
from passbench.timing import cores
from passbench.timing.exchanges import PairExchanges
from passbench.timing.statistics import (
    Exchange,
    Pairs,
    Plan,
    disturbed,
    median_iqr,
    planned,
    settled,
    speedup_of,
    summarise,
)


def pairs(eager: list[float], candidate: list[float], overhead: float = 300.0, calls: int = 100) -> Pairs:
    """Exchanges whose calls take these microseconds, with an overhead that both sides have."""

    def side(values: list[float]) -> list[Exchange]:
        return [Exchange(calls, overhead + calls * value, value) for value in values]

    return Pairs(side(eager), side(candidate))


def test_the_overhead_of_an_exchange_is_taken_off_both_sides():
    by_side = pairs([20.0, 20.0, 20.0], [10.0, 11.0, 10.0]).per_call()
    assert by_side == ([20.0, 20.0, 20.0], [10.0, 11.0, 10.0])


@pytest.mark.parametrize("seed", range(4))
def test_either_side_is_first_as_often_where_the_fewest_pairs_are_enough(seed):
    workers = SimpleNamespace(rng=random.Random(seed), eager="eager", candidate="candidate")
    exchanges, timed, first = PairExchanges(workers, print, print), Pairs(), []
    for _ in range(planned(12, 1, 100, 3).few):
        in_turn = exchanges.in_turn(timed)
        first.append(in_turn[0][0])
        for worker, done in in_turn:
            assert done is getattr(timed, worker)
            done.append(Exchange(1, 1.0))
    assert (first.count("eager"), first.count("candidate")) == (6, 6)


def test_what_a_candidate_says_about_its_own_time_changes_nothing():
    honest = pairs([20.0] * 5, [10.0] * 5)
    liar = Pairs(honest.eager, [Exchange(e.calls, e.total_us, 0.5) for e in honest.candidate])
    assert summarise("e2e", liar, 0.2).speedup == pytest.approx(2.0)
    assert summarise("e2e", liar, 0.2, trusted=True).speedup == pytest.approx(40.0)


def test_an_overhead_estimated_too_high_cannot_eat_an_exchange():
    few = Pairs([Exchange(2, 100.0, 0.0)], [Exchange(2, 80.0, 0.0)])
    assert few.per_call() == ([18.0], [8.0])


def test_an_exchange_without_calls_tells_the_overhead_where_one_was_timed():
    replays = Pairs([Exchange(10, 90.0)] * 3, [Exchange(10, 60.0)] * 3, empty_us=[29.0, 30.0, 500.0])
    assert replays.per_call() == ([6.0] * 3, [3.0] * 3)
    timing = summarise("device", replays, 0.2)
    assert (timing.clock, timing.calls, timing.noisy) == ("device", 30, False)
    assert timing.speedup == pytest.approx(2.0)


def test_median_and_interquartile_range():
    assert median_iqr([1.0, 2.0, 3.0, 4.0, 100.0]) == (3.0, 2.0)
    assert median_iqr([5.0]) == (5.0, 0.0)


def test_all_exchanges_count_and_noise_is_said():
    quiet = summarise("e2e", pairs([20.0, 20.0, 21.0, 20.0], [10.0] * 4), 0.2)
    assert (quiet.eager_us, quiet.candidate_us) == pytest.approx((20.0, 10.0))
    assert (quiet.calls, quiet.noisy) == (400, False)
    noisy = summarise("e2e", pairs([10.0, 20.0, 30.0, 40.0], [10.0] * 4), 0.2, repeats=2)
    assert noisy.noisy and noisy.repeats == 2 and not settled(noisy, 1.0)


def drawn(rng: np.random.Generator, count: int, drift: float, first: float, disturbed: float) -> list[np.ndarray]:
    """Times of pairs, eager's 1.5 times the candidate's, with 1.5 % noise. Both sides drift by a share of their time,
    being first costs a share, and a share of the exchanges takes up to half as long again."""
    sides = 10.0 * np.exp(0.015 * rng.standard_normal((2, count))) * (1 + drift * np.linspace(0, 1, count))
    sides[0] *= 1.5
    sides[rng.integers(2) ^ np.arange(count) % 2, np.arange(count)] *= 1 + first
    return list(np.where(rng.random((2, count)) < disturbed, sides * rng.uniform(1.05, 1.5, (2, count)), sides))


@pytest.mark.parametrize(
    ("count", "drift", "first", "disturbed", "most"),
    [(12, 0, 0, 0, 0.02), (24, 0.3, 0.02, 0, 0.02), (24, 0, 0, 0.3, 0.02), (48, 0, 0, 0.5, 0.02)],
)
def test_the_speedup_is_unbiased_and_its_interval_holds(count, drift, first, disturbed, most):
    rng = np.random.default_rng(0)
    sides = np.array([drawn(rng, count, drift, first, disturbed) for _ in range(100)])
    found = [speedup_of(*both) for both in sides]
    errors = np.array([speedup.value for speedup in found]) / 1.5 - 1
    assert abs(np.median(errors)) < 0.0025 and np.quantile(abs(errors), 0.95) < most
    held = [speedup.low <= 1.5 <= speedup.high for speedup in found]
    assert np.mean(held) >= 0.85  # 95 % expected; a bootstrap over few pairs is a little too narrow
    assert speedup_of([2.0], [1.0]) == pytest.approx((2.0, 2.0, 2.0))


def test_neither_bursts_on_one_side_nor_exchanges_that_are_too_short_decide():
    rng = np.random.default_rng(0)
    eager, candidate = 10 * np.exp(0.01 * rng.standard_normal((2, 24)))
    short = np.where(np.arange(24) % 8 == 0, 0.8, 1.0)
    assert speedup_of(eager, candidate * short).value == pytest.approx(1.0, abs=0.01)
    slow = np.where(np.arange(24) % 2, 1.5, 1.0)
    assert speedup_of(eager, candidate * slow).value == pytest.approx(1.0, abs=0.02)
    levels = np.repeat(rng.uniform(1, 1.5, 6), 4)  # of both sides, a few pairs each
    assert speedup_of(eager * levels, candidate * levels).value == pytest.approx(1.0, abs=0.01)


def test_latest_exchanges_far_above_the_fastest_are_disturbed():
    assert not disturbed(pairs([10.0] * 12, [5.0] * 12))
    assert disturbed(pairs([10.0] * 12, [5.0] * 9 + [8.0] * 3))
    assert not disturbed(pairs([10.0] * 12, [8.0] * 3 + [5.0] * 9)), "that is over"


def test_more_is_measured_until_the_speedup_is_known():
    sharp = summarise("e2e", pairs([20.0] * 8, [10.0] * 8), 0.2)
    assert settled(sharp, 0.01)
    blurred = summarise("e2e", pairs([20.0, 19.0, 21.0, 18.5], [10.0, 10.8, 9.4, 11.0]), 0.2)
    assert not settled(blurred, 0.01)


@pytest.mark.parametrize(
    ("asked", "plan"),
    [
        ((8, 1, 1000, 3), Plan(8, 8, 32)),
        ((8, 50, 1000, 3), Plan(50, 50, 200)),  # as many calls as were asked for, however well they agree
        ((8, 1, 20, 3), Plan(8, 8, 20)),
        ((8, 50, 6, 3), Plan(6, 6, 6)),
        ((2, 2, 1000, 0), Plan(2, 2, 2)),
    ],
)
def test_a_plan_covers_the_calls_and_keeps_to_the_time(asked, plan):
    assert planned(*asked) == plan
    assert [plan.repeats(n) for n in (1, plan.wanted, plan.wanted + 1, 4 * plan.wanted)] == [0, 0, 1, 3]


def timed(noise: float, rng: random.Random, plan: Plan) -> tuple[int, float]:
    """Pairs until the plan is done, and the speedup then, of a true 1.5."""
    times = [[scale * rng.gauss(1, noise) for _ in range(plan.most)] for scale in (30.0, 20.0)]
    for done in filter(plan.looks, range(1, plan.most + 1)):
        timing = summarise("e2e", pairs(*(side[:done] for side in times)), 0.2, plan.repeats(done))
        if settled(timing, 0.0125):
            break
    return done, timing.speedup


def test_pairs_end_once_the_speedup_is_known():
    rng, plan = random.Random(0), planned(12, 1, 1000, 3)
    assert {timed(0.001, rng, plan)[0] for _ in range(5)} == {12}
    some = [timed(0.015, rng, plan) for _ in range(20)]
    assert len({done for done, _ in some}) > 3 and np.mean([done for done, _ in some]) < 30
    assert sum(abs(speedup / 1.5 - 1) <= 0.03 for _, speedup in some) >= 19
    assert timed(0.3, rng, plan)[0] == 48


def test_defaults_depend_on_the_device():
    cuda, cpu = (Settings().resolved(torch.device(d)) for d in ("cuda", "cpu"))
    assert cuda.calls >= 100 and cuda.warmup == 25 and cuda.child_memory_bytes is None
    assert cpu.calls < 10 and cpu.draws <= 2
    assert Settings(calls=7).resolved(torch.device("cpu")).calls == 7
    with pytest.raises(ValueError, match="unknown"):
        Settings(protocol="other")
    with pytest.raises(ValueError, match="no layers to turn off: everything"):
        Settings(off=frozenset({"everything"}))


def test_both_children_share_the_quietest_core_and_the_parent_has_the_next(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(2, 18)))
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cores: None)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr(cores, "_first_thread", lambda processor: processor)
    monkeypatch.setattr(cores, "_seconds_on", lambda core: {5: 4.0, 7: 1.0, 9: 3.0, 11: 2.0}.get(core, core))
    chosen = cores.choose(torch.device("cuda", 0))
    assert chosen == cores.Cores({7}, {11}, (9, 5))
    assert cores.choose(torch.device("cuda", 1)) == cores.Cores({3}, {13}, (15, 17)), "no other GPU's cores"
    assert chosen.elsewhere() == cores.Cores({9}, {11}, (5, 7))
    assert cores.choose(torch.device("cpu")) is None
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    assert cores.choose(torch.device("cuda", 0)) is None


def test_candidates_are_no_two_threads_of_one_core(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(32)))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for thread_of in (lambda processor: processor % 16, lambda processor: processor // 2 * 2):
        monkeypatch.setattr(cores, "_first_thread", thread_of)
        windows = [cores.window(torch.device("cuda", number)) for number in (0, 1)]
        assert all(len({thread_of(one) for one in window[::2]}) == 8 for window in windows)
        assert not set(windows[0]) & set(windows[1])


@pytest.mark.parametrize(("processors", "gpus"), [(32, 2), (16, 1), (4, 1)])
def test_no_candidate_is_on_the_first_core_where_others_are_left(processors, gpus, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(processors)))
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.setattr(cores, "_seconds_on", lambda core: core)
    for thread_of in (lambda processor: processor % (processors // 2), lambda processor: processor // 2 * 2):
        monkeypatch.setattr(cores, "_first_thread", thread_of)
        for number in range(gpus):
            chosen = cores.choose(torch.device("cuda", number))
            used = [thread_of(one) for one in (*chosen.children, *chosen.parent, *chosen.others)]
            assert len(set(used)) == len(used) >= 2
            assert 0 not in used or processors == 4


def test_the_kernel_says_which_threads_a_core_has():
    assert all(cores._first_thread(one) <= one for one in os.sched_getaffinity(0))
    assert cores._first_thread(100_000) == 100_000

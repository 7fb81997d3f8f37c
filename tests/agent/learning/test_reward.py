"""Rewards: the formula, and that nothing but a correct pass earns anything."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import passnet
from agent.learning.reward import SETTINGS, Reward, reward_of, unfit, value_of
from agent.learning.rewards import Rewards
from passbench.bench import Bench
from passbench.contract import NAMES_FILE
from passbench.result import EAGER_FAILED, STATUSES, Times, Timing, VariantResult
from passbench.settings import Settings
from storage.errors import PassNetError
from tests.passbench.attacks.attack_kinds import NO_GAIN
from tests.passbench.attacks.attack_table import ATTACKS, HONEST
from tests.passbench.samples import PASSES, add_relu_sample
from tests.support.scored import samples

QUICK = Settings(draws=2, calls=4, batch=2, warmup=2, repeats=0, double=False, first_call_timeout=60)
SAMPLE = add_relu_sample((3, 40), (5, 7))
EARNS_AS_EAGER = {a.name for a in ATTACKS if a.steps[0] is NO_GAIN}
"""What was an attack once and is legal now: library calls. They gain nothing."""


def files_of(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir() if path.is_file()}


def result(status="ok", t_min=-6, speedup=2.0, clock="e2e", **others) -> VariantResult:
    timing = Timing(clock, 10 * speedup, 10.0, 0.1, 0.1, 100, 0, False, speedup, speedup)
    fields = {"t_min": t_min if status == "ok" else None, "times": Times((timing,)), "times_meaningful": True}
    return VariantResult("s", "fusible", "v", "pass", status, **{**fields, **others})


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5), st.floats(1.01, 5))
def test_it_is_bounded_and_rises_with_speed(speedups, factor):
    one = reward_of([result(speedup=s) for s in speedups])
    faster = reward_of([result(speedup=s * factor) for s in speedups])
    assert 0 < one.value < faster.value < 1


@given(st.sampled_from([s for s in STATUSES if s != "ok"]), st.integers(0, 3), st.floats(1, 1e300))
def test_one_failed_variant_earns_nothing(status, place, speedup):
    results = [result(speedup=speedup)] * 3
    results.insert(place, result(status, reason="why"))
    assert reward_of(results) == Reward(0.0, None, status, "why")


def test_the_formula():
    assert value_of(1.0) == 0.5 and value_of(3.0) == 0.75 and value_of(1e300) == 1.0
    assert reward_of([result(speedup=2.0), result(speedup=8.0)]).value == pytest.approx(0.8)
    assert reward_of([result(t_min=-4)]).value == 0 and reward_of([result(t_min=-4)], level=-4).value > 0.5
    assert reward_of([result()], clock="device").value == 0, "a clock without a time pays nothing"
    untimed = reward_of([result(times_meaningful=False, speedup=100.0)])
    assert (untimed.value, untimed.speedup) == (0.5, None)
    eager_failed = result("runtime_error", reason=f"{EAGER_FAILED}: out of memory")
    assert reward_of([eager_failed]).value == 0 and reward_of([eager_failed, result()]).speedup == pytest.approx(2.0)
    with pytest.raises(PassNetError, match="levels from -10 to 1"):
        reward_of([result()], level=2)


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"fuse.py": "x"},
        {NAMES_FILE: "[]", "../fuse.py": "x"},
        {NAMES_FILE: "[]", "fuse.py": "x" * 300_000},
        {NAMES_FILE: '["a"]', "a.py": "\ud800"},
        {NAMES_FILE: "[]", **{f"m{n}.py": "" for n in range(40)}},
    ],
)
def test_what_is_no_pass_is_told(files):
    assert unfit(files)


@pytest.fixture(scope="module")
def rewards():
    with Rewards(["cpu"], settings=QUICK) as running:
        yield running


def test_passes_in_warm_processes(rewards):
    names = ("add_relu", "wrong", "no_match", "raises", "wrong_shape", "add_relu")
    found = rewards.score([(SAMPLE, files_of(PASSES / name)) for name in names])
    assert [one.value for one in found] == [0.5, 0, 0, 0, 0, 0.5]
    assert [one.status for one in found[:3]] == ["ok", "wrong", "no_match"]
    assert found[0] is found[-1], "the same files at the same sample are judged once"
    assert rewards(SAMPLE, {}).value == 0 and rewards(SAMPLE, str(PASSES / "add_relu")).value == 0.5
    assert rewards(SAMPLE, {NAMES_FILE: "[1]"}).status == "compile_error"


def test_a_process_that_ends_is_replaced(rewards):
    assert rewards(SAMPLE, PASSES / "add_relu").value == 0.5
    (worker,) = rewards._workers
    os.kill(worker._process.pid, signal.SIGKILL)
    assert rewards(SAMPLE, PASSES / "add_relu").value == 0.5


def test_devices_that_are_not_there():
    with pytest.raises(PassNetError, match="twice"):
        Rewards(["cuda:0", "cuda"])
    with Rewards(["cuda:77"]) as there_is_none, pytest.raises(PassNetError, match="cuda:77"):
        there_is_none(SAMPLE, {})


def test_the_public_face(tmp_path):
    sample = samples()[0]
    assert passnet.reward(sample, PASSES / "add_relu", device="cpu").value == 0.5
    assert passnet.reward(sample, {}, device="cpu").value == 0.0
    with pytest.raises(PassNetError, match="no pass directory"):
        passnet.reward(sample, tmp_path / "nowhere", device="cpu")
    assert passnet.rewards("cpu").devices == ("cpu",)


@pytest.fixture(scope="module")
def bench():
    with Bench("cpu", QUICK) as running:
        yield running


ON_CPU = [attack for attack in ATTACKS if "cpu" in attack.devices]
REFUSED = [attack for attack in ON_CPU if attack.steps[0].layer == "static_policy"]
ONE_OF_EACH = list({str(attack.steps[0]): attack for attack in REFUSED}.values())
"""One attack for each rule that refuses one; what the others earn is told by `tests.passbench.attacks.test_attacks`."""


@pytest.mark.parametrize("attack", ONE_OF_EACH, ids=lambda a: a.name)
def test_refused_attacks_earn_nothing(bench, attack):
    earned = reward_of(list(bench.run(attack.sample(), "pass", attack.directory)))
    assert earned.value == 0.0, earned


@pytest.mark.gpu
def test_attacks_earn_nothing_on_a_gpu():
    with Rewards() as running:
        found = running.score([(attack.sample(), attack.directory) for attack in ATTACKS if "cuda" in attack.devices])
    names = [attack.name for attack in ATTACKS if "cuda" in attack.devices]
    earned = {name: one for name, one in zip(names, found, strict=True) if one.value}
    assert earned.keys() <= EARNS_AS_EAGER, earned


@pytest.mark.gpu
def test_honest_passes_earn_each_time_they_are_judged():
    """Ten on a warm GPU, twice each. How near two rewards are, `oracle_rewards` of benchmarks/learning tells."""
    chosen = [h for h in HONEST if "cuda" in h.devices and h.most <= -5][:10]
    jobs = [(replace(h.sample(), sample=f"{h.name}-{n}"), h.directory) for n in range(2) for h in chosen]
    with Rewards([f"cuda:{torch.cuda.current_device()}"], settings=SETTINGS) as running:
        found = running.score(jobs)
    assert all(one.value for one in found), found

"""The scripted model of `benchmarks/agent/agent_run.py` errs as it is meant to."""

import pytest

from agent.distill.static import Distill
from passbench.contract import read_pass_dir, write_pass_dir
from passbench.policy.check import check_dir
from tests.agent.distill.families import FAMILIES
from tests.agent.support import sample, variant
from tests.support.llm_solver import PLANS, Solver, cheating, wrong


@pytest.fixture(scope="module")
def solved(tmp_path_factory):
    """A variant, and the files of a right pass for it."""
    family = FAMILIES["silu_mul"]
    one = variant(family.function, *family.inputs)
    place = tmp_path_factory.mktemp("solved") / "pass"
    Distill().write(sample(one), place)
    return one, dict(read_pass_dir(place).files)


def test_a_wrong_pass_is_allowed_and_wrong(solved, tmp_path, interpreter):
    one, files = solved
    write_pass_dir(wrong(files), tmp_path / "pass")
    assert check_dir(tmp_path / "pass") == []
    assert "150 of 150 elements differ" in interpreter.problems(tmp_path / "pass", one, draws=1)[0]


def test_a_cheating_pass_is_refused(solved, tmp_path):
    write_pass_dir(cheating(solved[1]), tmp_path / "pass")
    assert {finding.rule for finding in check_dir(tmp_path / "pass")} == {"host_read"}


def test_three_attempts_at_two_samples_follow_every_plan(solved):
    solver = Solver({"one": solved[1], "two": solved[1]}, attempts=3)
    plans = [solver.plan(name, attempt) for name in ("one", "two") for attempt in (1, 2, 3)]
    assert plans == list(PLANS)
    first = [{"role": "system", "content": ""}, {"role": "user", "content": "Task two: ..."}]
    said = solver(first)
    assert said.text == "Plan cheat, attempt 1."
    again = solver([*first, {"role": "assistant", "content": said.text}])
    assert again.calls == PLANS["cheat"](solved[1])[1].calls and not solver.held.is_set()
    assert solver(first).text == "Plan wanderer, attempt 2."

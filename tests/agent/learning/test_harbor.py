"""Tasks in Harbor's layout: what is in them, and what their scripts do here."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from agent.learning import verify
from agent.learning.harbor import PASSES, write_task
from agent.learning.verify import kept_sample
from passbench.contract import NAMES_FILE
from storage.errors import PassNetError
from tests.passbench.attacks.attack_table import ATTACKS
from tests.passbench.samples import PASSES as OWN_PASSES
from tests.support.scored import samples

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    place = tmp_path_factory.mktemp("harbor") / "task"
    files = {path.name: path.read_text() for path in (OWN_PASSES / "add_relu").iterdir() if path.is_file()}
    write_task(samples()[0], place, files)
    return place


def scored(task: Path, place: Path) -> tuple[dict, str]:
    """The reward that test.sh writes after solve.sh, and what it says."""
    where = {"PASSNET_PASSES": str(place / "pass"), "PASSNET_REWARD": str(place / "logs" / "reward.json")}
    python = str(Path(sys.executable).parent)
    env = {**os.environ, **where, "PYTHONPATH": str(ROOT), "PATH": f"{python}:{os.environ['PATH']}"}
    subprocess.run([task / "solution" / "solve.sh"], env=env, check=True)
    done = subprocess.run([task / "tests" / "test.sh"], env=env, capture_output=True, text=True, check=True)
    return json.loads((place / "logs" / "reward.json").read_text()), done.stdout


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(PassNetError, match=r"cannot write to .*choose another directory"):
        write_task(samples()[0], tmp_path / "file" / "task")


def test_what_a_task_holds(task):
    config = tomllib.loads((task / "task.toml").read_text())
    assert config["verifier"]["environment_mode"] == "separate" and config["artifacts"] == [PASSES]
    assert config["task"]["name"] == f"passnet/{samples()[0].sample}"
    assert kept_sample(task / "tests" / "sample") == samples()[0]
    text = (task / "instruction.md").read_text()
    assert PASSES in text and "torch.relu" in text and "evaluate()" not in text
    assert "relu" not in (task / "environment" / "Dockerfile").read_text()
    assert NAMES_FILE in (task / "solution" / "solve.sh").read_text()


def test_the_solution_earns_and_doing_nothing_does_not(task, tmp_path):
    out = tmp_path / "reward.json"
    assert verify.main(["--sample", str(task / "tests" / "sample"), "--passes", "nowhere", "--out", str(out)]) == 0
    assert json.loads(out.read_text()) == {"reward": 0.0}
    reward, said = scored(task, tmp_path / "solved")
    assert reward == {"reward": 0.5} and "ok" in said


@pytest.mark.parametrize("name", ["getattr_call", "last_call_computes"])
def test_an_attack_earns_nothing_from_a_task(name, tmp_path):
    """One that the policy refuses, and one that a benchmark finds; `exported_tasks/attack_rewards.py` tries all."""
    (attack,) = (a for a in ATTACKS if a.name == name)
    write_task(attack.sample(), tmp_path / "task")
    given = ["--sample", tmp_path / "task" / "tests" / "sample", "--passes", attack.directory, "--device", "cpu"]
    assert verify.main([*map(str, given), "--out", str(tmp_path / "reward.json")]) == 0
    assert json.loads((tmp_path / "reward.json").read_text()) == {"reward": 0.0}


def test_what_cannot_be_written(task, tmp_path):
    with pytest.raises(PassNetError, match="exists already"):
        write_task(samples()[0], task)
    with pytest.raises(PassNetError, match="cannot be a file of a pass"):
        write_task(samples()[0], tmp_path / "new", {"../x.py": "", NAMES_FILE: "[]"})


def test_harbor_reads_them(task):
    harbor = pytest.importorskip("harbor.models.task.task", reason="harbor needs Python 3.12 and is not installed")
    read = harbor.Task(task)
    assert read.name.startswith("passnet/") and "# The task" in read.instruction
    assert read.config.artifacts and read.config.verifier.environment_mode.value == "separate"

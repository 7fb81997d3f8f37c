"""`passnet export --format harbor`: one sample, or all of a split."""

import json

import pytest
from click.testing import CliRunner

from flows.cli.main import main
from tests.support.scored import samples, scored


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return scored(tmp_path_factory.mktemp("tasks") / "data").root


def exported(*arguments):
    return CliRunner().invoke(main, ["export", "--format", "harbor", "--json", *map(str, arguments)])


def test_one_sample_and_a_split(data, tmp_path):
    one = exported(samples()[0].sample, tmp_path / "one", "--data", data)
    assert one.exit_code == 0 and (tmp_path / "one" / "tests" / "test.sh").exists(), one.output
    all_ = exported(tmp_path / "all", "--split", "eval", "--at-most", 2, "--image", "mine:1", "--data", data)
    done = json.loads(all_.stdout)
    assert [task["sample"] for task in done["tasks"]] and len(done["tasks"]) == len(samples())
    assert max(task["variants"] for task in done["tasks"]) == 2
    for task in done["tasks"]:
        assert (
            (tmp_path / "all" / task["sample"] / "environment" / "Dockerfile").read_text().startswith("FROM mine:1\n")
        )


def test_neither_and_both_are_told(data, tmp_path):
    assert exported(tmp_path / "x", "--data", data).exit_code == 1
    assert exported(samples()[0].sample, tmp_path / "x", "--split", "eval", "--data", data).exit_code == 1
    plain = CliRunner().invoke(main, ["export", str(tmp_path / "x"), "--split", "eval", "--data", str(data)])
    assert plain.exit_code == 2 and not (tmp_path / "x").exists()

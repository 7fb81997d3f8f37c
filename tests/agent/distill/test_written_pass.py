"""A pass that the static policy refuses is not submitted."""

import json

import pytest

from agent.author import Submission
from agent.distill.written_pass import allowed

PASS = """import torch


def pattern(x):
    return torch.relu(x)


def replacement_args(x):
    return (x,)


@torch.fx.wrap
def relu(x):
    return {}


def replacement_func():
    return relu
"""


@pytest.fixture
def written(tmp_path):
    def write(value):
        directory = tmp_path / "pass"
        directory.mkdir()
        (directory / "fuse.py").write_text(PASS.format(value))
        (directory / "sorted_output_pass_rule_names.json").write_text(json.dumps(["fuse"]))
        return Submission("pass", directory), directory

    return write


def test_what_is_allowed_is_submitted(written):
    submission, directory = written("torch.relu(x)")
    assert allowed(submission, directory) is submission and directory.exists()


def test_what_is_refused_is_left_to_eager_and_the_reason_is_said(written):
    submission, directory = written("torch.tensor(x.tolist())")
    found = allowed(submission, directory)
    assert found.declined and "tolist" in found.reason and not directory.exists()


def test_what_an_author_has_declined_stays_as_it_is(tmp_path):
    declined = Submission("eager", reason="nothing to fuse")
    assert allowed(declined, tmp_path / "pass") is declined

"""A pass that the static policy refuses is not submitted, and one that is too long gets shorter."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agent.author import Submission
from agent.distill import task_plan
from agent.distill.source.style import Style
from agent.distill.static import Distill
from agent.distill.written_pass import allowed, within
from tests.agent.support import ANY, sample, tensor, variant

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


def _halves(x, w):
    scaled = torch.sigmoid(x * 2.0 + 1.0) * x
    return torch.relu(torch.matmul(scaled, w) + 1.0) * 3.0


@pytest.mark.parametrize("shorter, modules", [(1, 1), (10**6, 0)])
def test_what_saves_least_for_its_length_is_left_out_of_a_long_pass(shorter, modules, tmp_path, monkeypatch):
    one = sample(variant(_halves, tensor(16, 16), tensor(16, 16)))
    task = Distill().task(one, ANY)
    gains = task.gains()
    assert task.write(gains, Style(), tmp_path / "long").compiler == "pass" and len(gains) == 2
    length = sum(len(file.read_text()) for file in (tmp_path / "long").glob("*.py"))
    monkeypatch.setattr(task_plan, "MAX_SOURCE", length - shorter)
    submission = task.write(gains, Style(), tmp_path / "short")
    assert len(list((tmp_path / "short").glob("fuse_*.py"))) == modules
    assert submission.compiler == ("pass" if modules else "eager")
    assert bool(modules) or f"more than {length - shorter} characters" in submission.reason


@given(
    st.dictionaries(st.text(min_size=1), st.tuples(st.integers(1, 99), st.floats(-9, 9)), min_size=1),
    st.integers(0, 500),
)
def test_what_is_within_a_limit(patterns, most):
    sizes = {name: size for name, (size, _) in patterns.items()}
    gains = {name: gain for name, (_, gain) in patterns.items()}
    needed = next(iter(sizes))
    kept = within(sizes, gains, most, lambda rest: needed in rest)
    assert bool(kept) == (sizes[needed] <= most)
    assert not kept or (needed in kept and sum(sizes[name] for name in kept) <= most)
    if sum(sizes.values()) <= most:
        assert kept == list(sizes)

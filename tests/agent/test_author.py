"""Authors by name, and what they hand in."""

import pytest

from agent.author import Submission
from agent.registry import NAMES, author
from storage.errors import PassNetError
from tests.agent.distill.families import FAMILIES
from tests.agent.support import sample, variant


def test_baselines_name_their_compiler(tmp_path):
    one = sample(variant(FAMILIES["add_relu"].function, *FAMILIES["add_relu"].inputs))
    for name in ("eager", "inductor"):
        assert author(name).write(one, tmp_path / name) == Submission(name)
        assert not author(name).write(one, tmp_path / name).declined


def test_every_name_is_an_author_and_llm_needs_a_model():
    for name in NAMES:
        if name == "llm":
            with pytest.raises(PassNetError, match="--model"):
                author(name)
        else:
            assert author(name).name == name


def test_unknown_author_lists_the_names():
    with pytest.raises(PassNetError, match="distill"):
        author("nobody")

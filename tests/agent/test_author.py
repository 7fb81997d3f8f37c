"""Authors by name, and what they hand in."""

import pytest

from agent.author import Author, ReadyPasses, Submission
from agent.registry import NAMES, author
from storage.errors import PassNetError
from tests.agent.distill.families import FAMILIES
from tests.agent.support import lent, sample, variant


def test_baselines_name_their_compiler(tmp_path):
    one = sample(variant(FAMILIES["add_relu"].function, *FAMILIES["add_relu"].inputs))
    for name in ("eager", "inductor"):
        writer = author(name)
        assert writer.attempt(one, tmp_path / name, lent()) == Submission(name)
        assert not writer.attempt(one, tmp_path / name, lent()).declined
        assert (writer.identity, writer.model_name, writer.measures) == ({}, "", False)


class Nothing(Author):
    """The smallest author there can be."""

    name = "nothing"

    def attempt(self, sample, directory, attempt):
        return Submission("eager", reason="it never finds anything")


def test_a_further_author_is_a_small_class(tmp_path):
    writer = Nothing()
    writer.begin([])
    assert writer.attempt(None, tmp_path, lent()).declined and writer.model_name == ""


def test_ready_passes_are_handed_in_where_there_is_one(tmp_path):
    one = sample(variant(FAMILIES["add_relu"].function, *FAMILIES["add_relu"].inputs))
    writer = ReadyPasses(tmp_path)
    assert writer.attempt(one, tmp_path / "unused", lent()).declined
    (tmp_path / one.sample).mkdir()
    assert writer.attempt(one, tmp_path / "unused", lent()) == Submission("pass", tmp_path / one.sample)
    assert writer.identity != ReadyPasses(tmp_path / "other").identity


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

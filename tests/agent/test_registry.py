"""Authors by name."""

from pathlib import Path

import pytest

from agent.author import Submission, UnknownAuthor
from agent.distill.static import Distill
from agent.distill.tuned import Tuned
from agent.registry import NAMES, author
from passbench.names import COMPILERS
from tests.agent.support import lent

BASELINES = [compiler for compiler in COMPILERS if compiler != "pass"]


def test_every_compiler_but_a_pass_is_a_baseline():
    inductors = ["inductor", "inductor-direct", "inductor-strict", "inductor-strict-direct", "inductor-max-autotune"]
    assert ["eager", *inductors, "cudagraphs"] == BASELINES
    assert set(NAMES) == {"distill", "distill-static", "readable", "llm", *BASELINES}
    assert isinstance(author("distill"), Tuned)
    assert isinstance(author("distill-static"), Distill)


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_names_its_compiler(name):
    writer = author(name)
    assert writer.name == name
    assert writer.attempt(None, Path("nowhere"), lent()) == Submission(name)  # whatever the sample


def test_an_unknown_author_is_told_the_names():
    with pytest.raises(UnknownAuthor, match="cudagraphs"):
        author("pass")

"""When two runs are the same run."""

from dataclasses import replace

from agent.author import Baseline
from agent.distill.tuned import Tuned
from agent.run.identity import note_identity, run_id, run_identity, why_not_continued
from passbench.settings import Settings
from tests.agent.distill.families import FAMILIES
from tests.agent.support import sample, variant

FAMILY = FAMILIES["add_relu"]
SAMPLE = sample(variant(FAMILY.function, *FAMILY.inputs))
OTHER = replace(SAMPLE, sample="fusible-other")


def identity(author=None, samples=(SAMPLE,), kind="cpu", **settings):
    return run_identity(author or Baseline("eager", "eager"), samples, 1, kind, Settings(**settings))


def test_the_same_run_has_the_same_id_whatever_the_order_of_samples():
    assert run_id(identity(samples=(SAMPLE, OTHER))) == run_id(identity(samples=(OTHER, SAMPLE)))
    others = [identity(kind="cuda"), identity(draws=9), identity(samples=(OTHER,)), identity(Baseline("eager", "x"))]
    assert run_id(others.pop()) == run_id(identity()), "a compiler goes by its name"
    assert len({run_id(other) for other in (*others, identity())}) == len(others) + 1
    assert run_id(identity(Tuned())) != run_id(identity(Tuned(seconds=1.0)))


def test_runs_that_are_not_gone_on_with_are_told_with_their_cause(tmp_path):
    old, new = identity(draws=9), identity(samples=(SAMPLE, OTHER))
    for one in (old, identity(Tuned()), new):
        note_identity(tmp_path / run_id(one), one)
        (tmp_path / run_id(one) / "fusible-test.parquet").touch()
    unknown = tmp_path / "eager-0123456789"
    unknown.mkdir()
    (unknown / "fusible-test.parquet").touch()
    (tmp_path / "eager-empty").mkdir()
    elsewhere = identity(samples=(replace(SAMPLE, sample="fusible-elsewhere"),))
    note_identity(tmp_path / run_id(elsewhere), elsewhere)
    (tmp_path / run_id(elsewhere) / "fusible-elsewhere.parquet").touch()
    said = sorted(why_not_continued(tmp_path, new))
    assert len(said) == 2
    assert any("0123456789" in line and "does not say what it measured" in line for line in said)
    (line,) = [line for line in said if run_id(old) in line]
    assert "which has 1 finished sample: " in line and "settings draws was 9" in line
    assert "samples differ: 1 in both, 0 in that run alone, 1 in this one alone" in line


def test_a_run_of_more_samples_is_told_as_that(tmp_path):
    old = identity(samples=(SAMPLE, OTHER))
    note_identity(tmp_path / run_id(old), old)
    for name in (SAMPLE.sample, OTHER.sample):
        (tmp_path / run_id(old) / f"{name}.parquet").touch()
    (line,) = why_not_continued(tmp_path, identity())
    assert "which has 2 finished samples: samples differ: 1 in both, 1 in that run alone, 0 in this one alone" in line

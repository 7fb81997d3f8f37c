"""Searches on a GPU that has no memory left for some of what they measure."""

import pytest
import torch

from agent.author import SeenInDraws
from agent.distill.search.scores import UNSURE
from agent.distill.search.trial import Rightness
from tests.agent.distill.search_support import attempt_by, measuring, results_of
from tests.agent.support import sample, tensor, variant

FULL = "not measured: OutOfMemoryError: CUDA out of memory. Tried to allocate 50.00 MiB."


def _one():
    return sample(variant(lambda x, y: torch.sigmoid(x * 0.5 + y), tensor(2**16, 8), tensor(2**16, 8)))


def _lacking(one):
    return results_of(one, 1.0, "runtime_error", None, FULL)


@pytest.mark.parametrize("right", [True, False])
def test_what_could_not_be_measured_again_is_what_it_was(right, tmp_path):
    """fusible-3bc076886c9b: passes that were 1.7 times as fast counted as wrong, and eager's calls were handed in."""
    one, seen = _one(), set()

    def rule(names, source):
        again = source in seen
        seen.add(source)
        return _lacking(one) if again else results_of(one, 1.7, t_min=-10 if right else -3)

    assert measuring(seconds=3.0).attempt(one, tmp_path / "pass", attempt_by(rule, [])).declined != right


@pytest.mark.parametrize("lacking", [True, False])
def test_what_could_be_neither_measured_again_nor_checked_is_handed_in_where_it_is_made_to_have_eagers_bits(
    lacking, tmp_path
):
    """Any rounding had them in the first measurement, of a few draws."""
    one, seen = _one(), set()

    def rule(names, source):
        again, exact = source in seen, "libdevice.exp(" in source
        seen.add(source)
        return _lacking(one) if again else 1.5 if exact else 1.7

    checked = SeenInDraws(-10, 0, lacked_memory=True) if lacking else SeenInDraws(-10, 512)
    attempt = attempt_by(rule, [], check=lambda *_: [checked])
    assert measuring(seconds=0.0).attempt(one, tmp_path / "pass", attempt).compiler == "pass"
    source = "".join(path.read_text() for path in (tmp_path / "pass").glob("fuse_*.py"))
    assert ("tl.exp(" in source) != lacking


def test_what_was_not_checked_is_given_up_for_eagers_bits_where_it_may_hide_others():
    half = frozenset(("float16",))
    seen = [Rightness({half: UNSURE}, 0, UNSURE, complete=complete) for complete in (True, False)]
    assert [right.inexact for right in seen] == [set(), {half}]


def test_what_could_not_be_measured_is_not_handed_in(tmp_path):
    one = _one()
    assert measuring(seconds=3.0).attempt(one, tmp_path / "pass", attempt_by(lambda *_: _lacking(one), [])).declined


def test_what_could_not_be_measured_first_is_measured_later(tmp_path):
    one, calls = _one(), []

    def rule(names, source):
        calls.append(source)
        return _lacking(one) if len(calls) < 3 else 1.7

    assert measuring(seconds=0.0).attempt(one, tmp_path / "pass", attempt_by(rule, [])).compiler == "pass"

"""Searches on a GPU that has no memory left for some of what they measure."""

import pytest
import torch

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


def test_what_could_not_be_measured_is_not_handed_in(tmp_path):
    one = _one()
    assert measuring(seconds=3.0).attempt(one, tmp_path / "pass", attempt_by(lambda *_: _lacking(one), [])).declined


def test_what_could_not_be_measured_first_is_measured_later(tmp_path):
    one, calls = _one(), []

    def rule(names, source):
        calls.append(source)
        return _lacking(one) if len(calls) < 3 else 1.7

    assert measuring(seconds=0.0).attempt(one, tmp_path / "pass", attempt_by(rule, [])).compiler == "pass"

"""Graphs of operators that rarely stand together: the pass computes what eager computes, or there is none."""

import pytest
import torch
import torch.nn.functional as F

from agent.distill.static import Distill
from passbench.policy.check import check_dir
from tests.agent.distill.wide_graphs import wide_graph
from tests.agent.support import ANY, HALVES, sample, tensor, variant

NUMBERS = range(12)
LEAST_WRITTEN = 11
"""So many of these graphs have a pass at least."""


def _remainders(x, y):
    return torch.remainder(x, 0.3) + y, torch.fmod(x, 0.7), y % 0.1


def _shrunk(x, y):
    return F.softshrink(x, 0.3) * 2.0, F.hardshrink(y, 0.3), torch.copysign(y, (x * 0.3).round())


def _same_type(x, y):
    own = x * 1.5
    same = own.type_as(own)
    same.add_(y)
    return own + 1.0, same * 2.0


def _diagonal(x, y):
    own = x * 1.5
    line = own.diagonal()
    line.add_(0.25)
    return line * 2.0 + y.amax(), own + 1.0


def _bools(x, y):
    return (x > 0).max(-1)[0], x * y


def _last_of_parts(x, y):
    last = x.sum(-1).chunk(2, dim=-1)[-1]
    last[..., 0] = 0.5
    return last - y.amax()


def _in_turn(x, y):
    kept = F.dropout(x, 0.5, False)
    kept += y
    return kept * 2.0, x + 1.0


def test_random_graphs(tmp_path, interpreter):
    written = 0
    for number in NUMBERS:
        graph = wide_graph(number, ("float32",))
        one, directory = graph.variant(), tmp_path / f"pass_{number}"
        if Distill(margin=ANY).write(sample(one), directory).declined:
            continue
        written += 1
        assert check_dir(directory) == [], graph.source
        assert interpreter.problems(directory, one, draws=1) == [], graph.source
    assert written >= LEAST_WRITTEN


@pytest.mark.parametrize("dtype", ("float32", *HALVES))
def test_scalars_that_eager_rounds_to_a_half_type(dtype, tmp_path, interpreter):
    one = variant(_remainders, tensor(4, 9, dtype=dtype), tensor(4, 9, dtype=dtype))
    assert not Distill(margin=ANY).write(sample(one), tmp_path / "pass").declined
    assert interpreter.problems(tmp_path / "pass", one, draws=2) == []


@pytest.mark.parametrize("dtype", HALVES)
def test_softshrink_subtracts_its_threshold_in_the_half_type(dtype, tmp_path):
    """Eager does so on a GPU. On a CPU it subtracts it in single precision."""
    one = variant(lambda x: F.softshrink(x, 0.3) * 2.0, tensor(4, 9, dtype=dtype))
    assert not Distill(margin=ANY).write(sample(one), tmp_path / "pass").declined
    source = "".join(path.read_text() for path in (tmp_path / "pass").glob("*.py"))
    assert f"load_0 - {torch.tensor(0.3, dtype=getattr(torch, dtype)).item()}" in source


@pytest.mark.parametrize("function", (_same_type, _diagonal, _shrunk, _bools, _last_of_parts, _in_turn))
def test_writes_to_what_shares_memory_and_values_that_never_vary(function, tmp_path, interpreter):
    one = variant(function, tensor(3, 6), tensor(3, 6) if function is not _diagonal else tensor(3, 3))
    submission = Distill(margin=ANY).write(sample(one), tmp_path / "pass")
    assert not submission.declined, submission.reason
    assert interpreter.problems(tmp_path / "pass", one, draws=2) == []

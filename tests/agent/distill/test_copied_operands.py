"""What eager would copy before a product is written contiguously; what others read keeps eager's strides."""

import pytest
import torch

from agent.distill.candidates import Options, find_candidates
from agent.distill.eager.copied_operands import copies
from agent.distill.eager.op_effects import find_effects
from agent.distill.lowered_regions import Sketches
from tests.agent.distill.test_ordered import _pass
from tests.agent.support import ANY, tensor, variant

SKETCHES = Sketches()
INPUTS = (tensor(2, 5, 12), tensor(2, 7, 12))


def _heads(x, y):
    q = torch.tanh(x.view(2, 5, 3, 4).transpose(1, 2)) * 2.0
    k = torch.sigmoid(y.view(2, 7, 3, 4).transpose(1, 2)).transpose(-2, -1)
    return (torch.matmul(q, k).softmax(-1),)


def _returned(x, y):
    q = torch.tanh(x.view(2, 5, 3, 4).transpose(1, 2)) * 2.0
    return q @ y.view(2, 7, 3, 4).permute(0, 2, 3, 1), q


def _read_again(x, y):
    q = torch.tanh(x.view(2, 5, 3, 4).transpose(1, 2)) * 2.0
    return q @ y.view(2, 7, 3, 4).permute(0, 2, 3, 1), torch.cumsum(q, -1).flatten(1)


def _one_batch(x, y):
    q = torch.tanh(x[0].view(5, 3, 4).transpose(0, 1)) * 2.0
    return (q @ y[0].view(7, 3, 4).permute(1, 2, 0),)


def _spared(function):
    one = variant(function, *INPUTS)
    known = find_effects(one.graph, one.inputs)
    values = range(len(one.inputs), len(known.values))
    found = {n: copies(one.graph, known, n) for n in values}
    return [one.graph.op_sequence[n - len(one.inputs)] for n, count in found.items() if count]


def test_copies_before_a_product_are_found():
    assert _spared(_heads) == ["operator.mul", ".transpose"]


@pytest.mark.parametrize("function", [_returned, _read_again, _one_batch])
def test_what_others_see_or_no_one_copies_keeps_its_strides(function, tmp_path, interpreter):
    assert "operator.mul" not in _spared(function)
    one, _ = _pass(function, INPUTS, tmp_path / "pass")
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_kernels_write_contiguously_what_eager_would_copy(tmp_path, interpreter):
    one, source = _pass(_heads, INPUTS, tmp_path / "pass")
    assert "((2, 3, 5, 4), (60, 20, 4, 1), torch.float32)" in source
    assert "((2, 3, 4, 7), (84, 28, 7, 1), torch.float32)" in source
    assert interpreter.problems(tmp_path / "pass", one) == []
    other = variant(_heads, tensor(2, 5, 12, dtype="float64"), tensor(2, 7, 12, dtype="float64"))
    assert interpreter.problems(tmp_path / "pass", other) == []


def test_a_spared_copy_counts():
    (first, *_), (plain, *_) = (
        find_candidates([variant(function, *INPUTS)], Options(margin=ANY), SKETCHES).candidates
        for function in (lambda x, y: _heads(x, y), _returned)
    )
    assert first.gain - plain.gain > 5.0

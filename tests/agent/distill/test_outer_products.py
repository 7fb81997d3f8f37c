"""Products of one column and one row are kernels with their neighbours; all others stay calls."""

import pytest
import torch

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.candidates import Options, find_candidates
from agent.distill.lowered_regions import Sketches
from tests.agent.distill.test_ordered import _pass
from tests.agent.support import ANY, FLOATS, in_dtype, sample, tensor, variant


def _rotary(frequencies, positions):
    """As `transformers` computes the angles of a rotary embedding."""
    wide = frequencies[None, :, None].float().expand(2, -1, 1)
    angles = (wide @ positions[:, None, :].float()).transpose(1, 2)
    both = torch.cat((angles, angles), dim=-1)
    return both.cos() * 1.5, both.sin() * 1.5


def _column_and_row(a, b):
    return torch.mm(a * 2.0, b) + 1.0, torch.bmm(a[None], b[None] + 1.0)


ROTARY = (tensor(6), tensor(2, 5, dtype="int64", low=0.0, high=9.0))
PAIR = (tensor(7, 1), tensor(1, 9))


@pytest.mark.parametrize(("function", "inputs"), [(_rotary, ROTARY), (_column_and_row, PAIR)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_column_and_a_row_need_no_call(function, inputs, dtype, tmp_path, interpreter):
    one, _ = _pass(function, in_dtype(inputs, dtype), tmp_path / "pass")
    assert len(list((tmp_path / "pass").glob("fuse_*.py"))) == 1
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_other_products_are_calls():
    one = variant(_column_and_row, tensor(7, 2), tensor(2, 9))
    found = find_candidates([one], Options(margin=ANY), Sketches())
    inside = {one.graph.op_sequence[op] for c in found.candidates for op in c.region.ops}
    assert inside and not inside & {"torch.mm", "torch.bmm"}


@pytest.mark.gpu
@pytest.mark.parametrize(("function", "inputs"), [(_rotary, ROTARY), (_column_and_row, PAIR)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_a_kernel_has_eagers_bits_on_a_gpu(function, inputs, dtype, tmp_path):
    one, _ = _pass(function, in_dtype(inputs, dtype), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

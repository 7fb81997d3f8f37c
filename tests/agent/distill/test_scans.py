"""Sums up to each element along a dimension with others behind it: one after another, as eager adds them."""

import pytest
import torch

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.lowered_regions import Sketches
from agent.distill.rounding import Rounding, rounded
from tests.agent.distill.test_ordered import _pass, _wide
from tests.agent.support import in_dtype, sample, tensor, variant


def _backward(x):
    return (x * 2.0).flip(1).cumsum(1).flip(1) + x, x * 2.0


def _expected(x):
    """Each sum is rounded to the dtype, as a GPU's thread keeps it."""
    doubled, sums, total = (x * 2.0).flip(1), [], torch.zeros_like(x[:, 0])
    for each in doubled.unbind(1):
        total = total + each
        sums.append(total)
    return torch.stack(sums, 1).flip(1) + x, x * 2.0


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [24, 90])
def test_a_kernel_adds_one_after_another(length, dtype, tmp_path, interpreter):
    shape = (2, length, 5)
    one, source = _pass(_backward, in_dtype((tensor(*shape),), dtype), tmp_path / "pass")
    assert "torch.cumsum" not in source.partition("def library_")[0] and "tl.cumsum" not in source
    assert ("for start in" in source) == (length == 90), "what registers hold is loaded at once"
    x = (_wide(*shape) / 2**12).to(getattr(torch, dtype))
    for found, expected in zip(interpreter.results(tmp_path / "pass", one, [x]), _expected(x), strict=True):
        assert torch.equal(found, expected)


def test_what_is_computed_of_the_sums_is_in_the_same_kernel(tmp_path, interpreter):
    def function(x, y):
        return torch.cumsum(x * y, 0) * y, torch.cumsum(x, 0, dtype=torch.float32).amax(0)

    x, y = _wide(40, 6, dtype=torch.float16) / 2**12, torch.randn(40, 6).half()
    one, source = _pass(function, in_dtype((tensor(40, 6), tensor(40, 6)), "float16"), tmp_path / "pass")
    assert source.count("_kernel(in_0") == 1
    scaled, highest = interpreter.results(tmp_path / "pass", one, [x, y])
    products, sums = x * y, [torch.zeros(6).half()]
    for each in products:
        sums.append(sums[-1] + each)
    assert torch.equal(scaled, torch.stack(sums[1:]) * y)
    total, totals = torch.zeros(6), []
    for each in x.float():
        total = total + each
        totals.append(total)
    assert torch.equal(highest, torch.stack(totals).amax(0))


@pytest.mark.parametrize("function", [lambda x: (x.cumsum(-1) * 2.0,), lambda x: (x.flatten().cumsum(0) * 2.0,)])
def test_along_the_last_dimension_eager_adds(function):
    """Its kernel for that adds by several threads."""
    one = variant(function, tensor(5, 19))
    assert rounded(Sketches().of(one.graph, one.inputs), Rounding.EXACT, lambda order: True) is None


def test_where_no_gpu_has_confirmed_it_eager_adds():
    one = variant(lambda x: (x.cumsum(0) * 2.0,), tensor(5, 19))
    assert rounded(Sketches().of(one.graph, one.inputs), Rounding.EXACT) is None


def test_sums_of_integers_are_the_same_in_any_order(tmp_path, interpreter):
    one, source = _pass(lambda x: x.cumsum(-1) + 1, (tensor(5, 19, dtype="int64"),), tmp_path / "pass")
    assert "tl.cumsum" in source
    assert interpreter.problems(tmp_path / "pass", one) == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [24, 90, 600])
def test_they_have_eagers_bits_on_a_gpu(length, dtype, tmp_path):
    one, _ = _pass(_backward, in_dtype((tensor(4, length, 96),), dtype), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

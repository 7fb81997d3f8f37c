"""Searches in sorted tensors as kernels: the places that eager finds, whatever is looked for."""

import pytest
import torch

from agent.distill.lowered_regions import FAILURES, Sketches
from tests.agent.distill.test_ordered import _pass
from tests.agent.support import tensor, variant


def _left(x, ordered):
    return (torch.bucketize(x, ordered) + 1,)


def _right(x, ordered):
    return (torch.bucketize(x, ordered, right=True, out_int32=True) * 3,)


def _rows(x, ordered):
    return (torch.searchsorted(ordered.expand(4, -1) + 0.0, x, side="right") + 2,)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("length", [1, 7, 8, 70])
@pytest.mark.parametrize("function", [_left, _right, _rows])
def test_places_are_eagers(function, length, dtype, tmp_path, interpreter):
    inputs = tensor(4, 40, dtype=dtype), tensor(length, dtype=dtype)
    one, source = _pass(function, inputs, tmp_path / "pass")
    assert "in one kernel" in source or function is _rows
    ordered = torch.linspace(-1.0, 1.0, length).round(decimals=1).to(getattr(torch, dtype))
    special = torch.tensor([float("nan"), float("inf"), -float("inf")])
    x = torch.cat([torch.linspace(-1.2, 1.2, 157).round(decimals=2), special]).view(4, 40).to(ordered.dtype)
    (found,) = interpreter.results(tmp_path / "pass", one, [x.clone(), ordered.clone()])
    assert torch.equal(found, *function(x, ordered))


def test_whole_numbers(tmp_path, interpreter):
    one, _ = _pass(_left, (tensor(40, dtype="int64"), tensor(9, dtype="int64")), tmp_path / "pass")
    x, ordered = torch.arange(40) - 5, torch.tensor([0, 2, 2, 3, 9, 9, 9, 20, 33])
    (found,) = interpreter.results(tmp_path / "pass", one, [x.clone(), ordered.clone()])
    assert torch.equal(found, *_left(x, ordered))


@pytest.mark.parametrize(
    "part", [lambda o: o[1, 3:], lambda o: o[0, 1::2], lambda o: o.T[2], lambda o: (o * 2.0)[1, 4:]]
)
def test_places_in_a_part_of_a_tensor(part, tmp_path, interpreter):
    one, _ = _pass(lambda x, o: (torch.bucketize(x, part(o)) + 1,), (tensor(4, 40), tensor(2, 20)), tmp_path / "pass")
    x, ordered = torch.linspace(-3.0, 3.0, 160).view(4, 40), torch.linspace(-1.0, 1.0, 40).view(2, 20)
    (found,) = interpreter.results(tmp_path / "pass", one, [x.clone(), ordered.clone()])
    assert torch.equal(found, torch.bucketize(x, part(ordered)) + 1)


@pytest.mark.parametrize("part", [lambda o: o[:, 3:], lambda o: o[:, 3:] - 1.0, lambda o: (o - 1.0)[:, 3:]])
def test_places_in_a_part_of_each_row(part, tmp_path, interpreter):
    one, _ = _pass(lambda x, o: (torch.searchsorted(part(o), x) + 1,), (tensor(4, 9), tensor(4, 20)), tmp_path / "pass")
    x, ordered = torch.linspace(-3.0, 3.0, 36).view(9, 4).T.contiguous(), torch.linspace(-2.0, 2.0, 80).view(4, 20)
    (found,) = interpreter.results(tmp_path / "pass", one, [x.clone(), ordered.clone()])
    assert torch.equal(found, torch.searchsorted(part(ordered), x) + 1)


def test_what_a_sorter_puts_in_order_is_left_to_eager():
    def searched(x, ordered):
        return (torch.searchsorted(ordered, x, sorter=torch.argsort(ordered)) + 1,)

    one = variant(searched, tensor(40), tensor(9))
    with pytest.raises(FAILURES):
        Sketches().of(one.graph, one.inputs)

"""Integers that a graph compares with a number are drawn as that number, too."""

import random

import pytest
import torch
import torch.nn.functional as F

from passbench.inputs import batch_layout as lay
from passbench.inputs.compared import compared_numbers
from passbench.inputs.distribution import CORRECTNESS, Distribution
from tests.passbench.samples import spec, variant


def ids(low, high, dtype="int64"):
    return spec("ids", 2, 60, dtype=dtype, low=low, high=high)


def cleared(ids, table):
    known = ids.clone()
    known[ids == 49155] = 0
    return F.embedding(known, table)


TABLE = spec("table", 32000, 4)
FOUND = {
    "the last of a range": (lambda x: (x.to(torch.int32) == 49407).int(), [ids(0, 49407)], (49407,)),
    "the first of a range": (lambda x: x.ne(0).cumsum(1), [ids(0, 30521)], (0,)),
    "what no draw has": (lambda x: (x == 140) | (x > 90), [ids(0, 1)], (89, 90, 91, 140)),
    "by another name": (lambda x: torch.greater_equal(x, other=5) | torch.isin(x, 9), [ids(0, 9)], (4, 5, 6, 9)),
    "of a small type": (lambda x: x < 127, [ids(0, 1, "int8")], (126, 127)),
    "the end of a range": (lambda x: x >= 9, [ids(0, 9)], (8, 9)),
    "a part of it": (lambda x: x[0] >= 9, [ids(0, 9)], None),
    "a promise": (lambda x: x == 2, [ids(0, 0)], None),
    "an index": (cleared, [ids(0, 31999), TABLE], None),
    "one of an input by its name": (
        lambda x, y: torch.isin(elements=x, test_elements=y.long()),
        [ids(0, 30521), ids(0, 1)],
        (0, 1),
    ),
    "one of an input": (lambda x, y: torch.isin(x, y), [ids(0, 30521), ids(0, 1)], (0, 1)),
    "the same as an input": (lambda x, y: x.to(torch.int32) == y, [ids(0, 9), ids(3, 99)], (3,)),
    "less than an input": (lambda x, y: x < y, [ids(0, 9), ids(0, 9)], None),
    "no range": (lambda x: x == 2, [ids(float("nan"), 3)], None),
    "a float": (lambda x: x == 2, [spec("x", 3, low=0.0, high=1.0)], None),
}


@pytest.mark.parametrize("what", FOUND)
def test_numbers_that_a_draw_may_hold(what):
    function, inputs, numbers = FOUND[what]
    found = compared_numbers(variant(function, *inputs).graph, inputs)
    assert found.get(0) == numbers


@pytest.mark.parametrize("shape", [(2, 60), (), (1,)])
@pytest.mark.parametrize("how", CORRECTNESS)
def test_varied_draws_have_them_in_about_half_of_the_calls(how, shape):
    """Also where an input is much smaller than the memory that each call has for it."""
    specs = (spec("ids", *shape, dtype="int64", low=0, high=1),)
    layout = lay.lay_out(specs, (), 200, random.Random(0))
    memory = torch.zeros(layout.end, dtype=torch.uint8)
    lay.draw(memory, layout, specs, 0, 0, how, {0: (7, 9)})
    (block,) = layout.batch.inputs
    calls = torch.stack([lay.at(memory, block, place).reshape(-1) for place in layout.batch.order])
    assert set(calls.unique().tolist()) == ({0, 1, 7, 9} if how is Distribution.VARIED else {0, 1})
    if how is Distribution.VARIED:
        assert 60 < (calls > 1).any(-1).sum() < 140
        assert (calls > 1).sum() < 280  # few of the elements of a larger input


def test_an_input_without_elements_holds_none():
    specs = (spec("ids", 0, 3, dtype="int64", low=0, high=1),)
    layout = lay.lay_out(specs, (), 3, random.Random(0))
    memory = torch.zeros(layout.end, dtype=torch.uint8)
    lay.draw(memory, layout, specs, 0, 0, Distribution.VARIED, {0: (7,)})
    assert lay.at(memory, layout.batch.inputs[0], 0).shape == (0, 3)

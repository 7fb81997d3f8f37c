"""One of two numbers, as a condition says: in the dtype that eager gives them, also where that has 64 bits."""

import pytest
import torch

from agent.distill.static import Distill
from tests.agent.support import ANY, sample, tensor, variant


def _whole(x):
    chosen = torch.where(x > 0, 3, 1)
    return chosen * chosen * chosen * chosen * 100000000 + chosen


def _in_tiles(x):
    return torch.where(x.mT > 0, 3, 1) * 2**40 + x.long().mT


def _double(x):
    y = x.double()
    return torch.where(y > 0, torch.full_like(y, 0.1), 0.3) * 3.0 + y


@pytest.mark.parametrize("function", [_whole, _in_tiles, _double])
def test_numbers_have_all_their_bits(function, tmp_path, interpreter):
    one = variant(function, tensor(4, 6, 40, low=-3.0, high=3.0))
    assert Distill(margin=ANY).write(sample(one), tmp_path / "pass").compiler == "pass"
    x = torch.linspace(-3.0, 3.0, 960).view(4, 6, 40)
    (found,) = interpreter.results(tmp_path / "pass", one, [x.clone()])
    assert torch.equal(found, function(x))

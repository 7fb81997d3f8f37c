"""Ops that add along dimensions, of tensors that have none."""

import torch

from tests.agent.distill.test_ordered import _pass
from tests.agent.support import tensor


def _of_single_numbers(x):
    total = x.sum()
    return torch.softmax(total * 2.0, 0) + total.sum(0) + total.mean(), x * 2.0


def test_sums_of_single_numbers_are_these_numbers(tmp_path, interpreter):
    one, _ = _pass(_of_single_numbers, (tensor(4, 6),), tmp_path / "pass")
    assert interpreter.problems(tmp_path / "pass", one) == []

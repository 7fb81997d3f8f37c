"""Relative attention's shift of scores by reshapes to and fro, with its padding, becomes one kernel."""

import pytest
import torch
import torch.nn.functional as F

from agent.distill.static import Distill
from tests.agent.support import ANY, sample, tensor, variant


def _transformer_xl(x, y):
    scores = x * y
    shifted = torch.cat([torch.zeros_like(scores[:, :, :, :1]), scores], -1).view(2, 3, 12, 7)[:, :, 1:]
    return shifted.reshape(2, 3, 7, 11)[:, :, :, :6] + y[:, :, :, :6]


def _xlnet(x, y):
    scores = (x * y).reshape(2, 3, 11, 7)[:, :, 1:].reshape(2, 3, 7, 10)
    return scores.index_select(3, torch.arange(6, device=x.device)) * 2.0


def _padded(x, y):
    scores = F.pad(x * y, (1, 0)).view(2, 3, -1, 7)[:, :, 1:].reshape(2, 3, 7, 11)
    return F.pad(scores, (0, 3)).reshape(2, 3, 14, 7).sum(1) + 1.0


@pytest.mark.parametrize("function", [_transformer_xl, _xlnet, _padded])
def test_shifted_scores_are_eagers(function, tmp_path, interpreter):
    one = variant(function, tensor(2, 3, 7, 11), tensor(2, 3, 7, 11))
    submission = Distill(margin=ANY).write(sample(one), tmp_path / "pass")
    assert submission.compiler == "pass", submission.reason
    assert interpreter.problems(tmp_path / "pass", one) == []

"""Tensors that a graph makes of nothing but sizes are computed within kernels, wherever they are read."""

import pytest
import torch

from agent.distill.source.style import Style
from agent.distill.static import Distill
from tests.agent.support import ANY, sample, tensor, variant


def _told_apart(x):
    eye = torch.eye(60, dtype=torch.bool, device="cuda")
    return eye[None] | (x > 0.5)


def _diagonal(x):
    return torch.eye(60, 61, device="cuda")[:, 1:] * 3.0 + x


def _gathered_angles(x):
    angles = torch.arange(-120, 120, 1.0, device="cuda").float()[:, None] * torch.arange(8, device="cuda")
    places = torch.arange(60, -60, -2, device="cuda")[:, None] + 120
    return torch.gather(angles, 0, places.expand(60, 8)) + x[0, :, :8]


def _looked_up(x):
    table = (torch.arange(200, device="cuda") * 3 - 7).float()
    return table[(x * 50.0).long() + 100] * 0.5


@pytest.mark.parametrize("function", [_told_apart, _diagonal, _gathered_angles, _looked_up])
def test_factories_are_computed_by_the_kernels_that_read_them(function, tmp_path, interpreter):
    one = variant(function, tensor(2, 60, 60, low=-1.0, high=1.0))
    task = Distill().task(sample(one), ANY)
    (found,) = task.graphs[0].candidates
    assert len(found.region.ops) == len(one.graph.ops), task.causes
    submission = Distill(margin=ANY).write(sample(one), tmp_path / "pass")
    assert submission.compiler == "pass", submission.reason
    assert interpreter.problems(tmp_path / "pass", one) == []


def _mask_beside_rolled(x, w):
    """As in typical-1646f15debfe: the mask is made of a range alone, and is returned."""
    places = torch.arange(60, device="cuda")
    mask = (places[None] > places[:, None]).float() * -100.0
    return mask, torch.roll(torch.tanh(x), 1, 1) @ w


@pytest.mark.parametrize("captured", [False, True])
def test_what_reads_nothing_is_computed_beside_what_reads_an_input(captured, tmp_path, interpreter):
    """A kernel needs an input to know its device: the range was an input, and a launch of eager's."""
    one = variant(_mask_beside_rolled, tensor(4, 60), tensor(60, 60))
    task = Distill().task(sample(one), ANY, whole=True)
    (found,) = task.graphs[0].candidates
    assert found.region.inputs == (0,) and len(found.region.ops) == len(one.graph.ops) - 1
    submission = task.write(tuple(task.gains()), Style(captured=captured), tmp_path / "pass")
    assert submission.compiler == "pass", submission.reason
    assert interpreter.problems(tmp_path / "pass", one) == []

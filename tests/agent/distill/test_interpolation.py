"""Bilinear interpolation in a kernel: as eager's CUDA kernel computes it, in eager's layouts."""

import pytest
import torch
import torch.nn.functional as F

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.candidates import Options, find_candidates
from agent.distill.eager.emulated_sums import fused
from agent.distill.eager.op_effects import find_effects
from agent.distill.lowered_regions import Sketches
from tests.agent.distill.test_ordered import _pass
from tests.agent.support import ANY, sample, tensor, variant


def _smaller(x):
    return F.interpolate(x, (3, 4), mode="bilinear", align_corners=False).sigmoid()


def _larger(x):
    return F.interpolate(x, size=(13, 17), mode="bilinear", align_corners=True) * 2.0


def _twice(x):
    return F.interpolate(x, scale_factor=2.0, mode="bilinear", align_corners=False) + 1.0


def _one_row(x):
    return F.interpolate(x, (1, 5), mode="bilinear", align_corners=True) + 1.0


FUNCTIONS = [_smaller, _larger, _twice, _one_row]


def _last(dtype):
    """Channels-last memory with a gap between images."""
    return tensor(2, 4, 7, 9, dtype=dtype, stride=(300, 1, 36, 4))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_kernel_is_right_in_any_layout(function, tmp_path, interpreter):
    one, source = _pass(function, (tensor(2, 4, 7, 9),), tmp_path / "pass")
    assert "in one kernel" in source
    assert interpreter.problems(tmp_path / "pass", one) == []
    turned, _ = _pass(function, (_last("float32"),), tmp_path / "turned")
    assert interpreter.problems(tmp_path / "turned", turned) == []


def _plain(x):
    return F.interpolate(x, (5, 6), mode="bilinear", align_corners=False).clamp(-1e30, 1e30)


def _as_eager(x, size):
    """The formula of `upsample_bilinear2d_out_frame`, contracted: each of (two places, two shares) by dimension."""
    found = []
    for given, made in zip(x.shape[2:], size, strict=True):
        number = torch.arange(made, dtype=torch.float32)
        step = torch.tensor(float(given)) / torch.tensor(float(made))
        source = fused(step, number + 0.5, torch.tensor(-0.5)).clamp(min=0)
        first = source.long()
        found.append((first, (first + 1).clamp(max=given - 1), source - first))
    (upper, lower, down), (left, right, over) = found

    def between(row):
        return fused(1 - over, x[:, :, row][..., left], over * x[:, :, row][..., right])

    return fused((1 - down)[:, None], between(upper), down[:, None] * between(lower))


def test_products_and_sums_are_contracted_as_in_eagers_kernel(tmp_path, interpreter):
    one, _ = _pass(_plain, (tensor(2, 3, 9, 11),), tmp_path / "pass")
    x = torch.randn(2, 3, 9, 11, generator=torch.Generator().manual_seed(1))
    (found,) = interpreter.results(tmp_path / "pass", one, [x])
    assert torch.equal(found, _as_eager(x, (5, 6)))


def test_a_thread_of_eagers_takes_all_channels_in_turn_unless_they_lie_side_by_side():
    found = (variant(_plain, x) for x in (tensor(2, 3, 9, 11), _last("float32")))
    assert [find_effects(one.graph, one.inputs).turns for one in found] == [(6, 0), (0, 0)]


def test_double_precision_is_left_to_eager():
    one = variant(_plain, tensor(2, 3, 9, 11, dtype="float64"))
    found = find_candidates([one], Options(margin=ANY), Sketches())
    assert [c.region.ops for c in found.candidates] == [(1,)]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("layout", [lambda dtype: tensor(2, 4, 7, 9, dtype=dtype), _last])
@pytest.mark.parametrize("function", [*FUNCTIONS, _plain])
def test_a_kernel_has_eagers_bits_on_a_gpu(function, layout, dtype, tmp_path):
    one, _ = _pass(function, (layout(dtype),), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

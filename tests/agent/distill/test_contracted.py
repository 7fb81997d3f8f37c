"""Ops whose CUDA kernels contract a product and a sum, or round a half type once: kernels compute them so."""

import pytest
import torch
import torch.nn.functional as F

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.eager.emulated_sums import fused
from agent.distill.rewrites.sample_graphs import float_dtypes
from agent.distill.rounding import Rounding
from agent.distill.static import Distill
from tests.agent.support import ANY, in_dtype, sample, tensor, variant

SKETCHES = Distill().sketches


def _number(x, value):
    return torch.full_like(x, value)


CASES = {
    "add": (lambda x, y: torch.add(x, y, alpha=0.3), lambda x, y: fused(_number(y, 0.3), y, x)),
    "sub": (lambda x, y: torch.sub(x, y, alpha=0.3), lambda x, y: fused(_number(y, -0.3), y, x)),
    "rsub": (lambda x, y: torch.rsub(y, x, alpha=0.3), lambda x, y: fused(_number(y, -0.3), y, x)),
    "addcdiv": (
        lambda x, y: torch.addcdiv(x, y, x, value=0.3),
        lambda x, y: fused(_number(y, 0.3), y / x, x),
    ),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), lambda x, y: fused(_number(y, 0.3), y - x, x)),
    "lerp from the end": (lambda x, y: torch.lerp(x, y, 0.7), lambda x, y: fused(x - y, 1 - _number(y, 0.7), y)),
    "pool": (
        lambda x, y: F.avg_pool2d((x * y).view(1, 1, 12, 36), 3),
        lambda x, y: sum((x * y).view(1, 1, 12, 36)[..., i::3, j::3] for i in range(3) for j in range(3)) / 9.0,
    ),
    "quotient": (lambda x, y: (x * y) / 9.0, lambda x, y: x * y * (torch.tensor(1.0) / 9)),
}
"""Functions, and what a GPU gives in single precision."""


def _pass(function, inputs, directory):
    made = sample(variant(function, *inputs))
    levels = dict.fromkeys(float_dtypes(made.variants).values(), Rounding.EXACT)
    task = Distill(sketches=SKETCHES).task(made, ANY, levels)
    submission = task.write(task.gains(), Distill().style, directory)
    assert submission.compiler == "pass", submission.reason
    return made.variants[0]


@pytest.mark.parametrize("name", CASES)
def test_products_and_sums_are_rounded_once(name, tmp_path, interpreter):
    function, expected = CASES[name]
    one = _pass(function, (tensor(12, 36), tensor(12, 36)), tmp_path / "pass")
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(12, 36, generator=generator) for _ in range(2))
    (found,) = interpreter.results(tmp_path / "pass", one, [x, y])
    assert torch.equal(found, expected(x, y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_gated_unit_and_a_weighted_sum_are_rounded_once_to_a_half_type(dtype, tmp_path, interpreter):
    """Of typical-f9416089f15c a kernel rounded the gate, too."""

    def function(x, y):
        return F.glu(x, 1), torch.add(y, y * 3.0, alpha=0.3)

    name = str(dtype).removeprefix("torch.")
    one = _pass(function, in_dtype((tensor(12, 72), tensor(12, 36)), name), tmp_path / "pass")
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(12, n, generator=generator).to(dtype) for n in (72, 36))
    gated, weighted = interpreter.results(tmp_path / "pass", one, [x, y])
    first, second = x.float().chunk(2, 1)
    assert torch.equal(gated, (first * (1 / (1 + torch.exp(-second)))).to(dtype))
    assert torch.equal(weighted, fused(_number(y.float(), 0.3), (y * 3.0).float(), y.float()).to(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_losses_round_as_eagers_kernels_or_are_left_to_them(dtype, tmp_path, interpreter):
    """Eager's loss of a half type rounds the difference. Other losses are left to eager."""
    inputs = in_dtype((tensor(12, 36), tensor(12, 36)), dtype)
    one = _pass(lambda x, y: F.mse_loss(x, y, reduction="none") * 2.0, inputs, tmp_path / "pass")
    x, y = (torch.randn(12, 36).to(getattr(torch, dtype)) for _ in range(2))
    (found,) = interpreter.results(tmp_path / "pass", one, [x, y])
    apart = x - y
    assert torch.equal(found, apart * apart * 2.0)
    made = sample(variant(lambda x, y: F.smooth_l1_loss(x, y, reduction="none") * 2.0, *inputs))
    task = Distill(sketches=SKETCHES).task(made, ANY)
    assert not any("smooth_l1" in pattern for pattern in task.gains())


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_the_bits_are_eagers_on_a_gpu(name, dtype, tmp_path):
    inputs = in_dtype((tensor(12, 36), tensor(12, 36)), dtype)
    one = _pass(CASES[name][0], inputs, tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_gated_units_have_eagers_bits_on_a_gpu(dtype, tmp_path):
    one = _pass(lambda x: F.glu(x * 2.0, 1), in_dtype((tensor(64, 72),), dtype), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

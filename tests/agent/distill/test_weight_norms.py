"""Weight norms in the order of eager's kernels: that of the first dimension, and that of the last one."""

import pytest
import torch

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.eager.emulated_sums import added, fused, rows_of
from agent.distill.eager.op_effects import find_effects
from agent.distill.eager.sum_order import order_of
from agent.distill.rewrites.sample_graphs import float_dtypes
from agent.distill.rounding import Rounding
from agent.distill.static import Distill
from tests.agent.distill.test_ordered import _pass, _rounded_twice
from tests.agent.support import ANY, in_dtype, sample, tensor, variant

NORMS = [((6, 5, 130), 0), ((5, 40, 20), 2), ((70, 9), 1), ((3, 700), 0)]
"""Shapes, and the dimension that is kept."""
DTYPES = ["float32", "float16", "bfloat16"]


def _gains(shape, dim):
    return [n if d == dim else 1 for d, n in enumerate(shape)]


def _function(dim):
    return lambda v, g: torch._weight_norm(v, g, dim) * 2.0


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), NORMS)
def test_a_weight_norm_is_added_by_as_many_threads_as_eagers(shape, dim, name, tmp_path, interpreter):
    dtype = getattr(torch, name)
    generator = torch.Generator().manual_seed(1)
    v, g = (torch.randn(size, generator=generator).to(dtype) for size in (shape, _gains(shape, dim)))
    inputs = in_dtype((tensor(*v.shape), tensor(*g.shape)), name)
    one, source = _pass(_function(dim), inputs, tmp_path / "pass")
    assert "ordered_squares" in source
    (addition,) = find_effects(one.graph, one.inputs).additions[0]
    order = order_of(addition)
    assert order.width * order.height == (64 if dim else 256)

    def expected(fma):
        total = added(rows_of(v, addition.reduced).float(), order, fma=fma)
        norm = total.double().sqrt().float().view(g.shape)  # a CPU's own is not always rounded to nearest
        return (g.float() * v.float() * (1.0 / norm)).to(dtype) * 2.0

    (found,) = interpreter.results(tmp_path / "pass", one, (v, g))
    assert any(torch.equal(found, expected(fma)) for fma in (fused, _rounded_twice))  # Triton 3.6 rounds twice


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "dim"), [*NORMS, ((768, 48, 128), 2), ((512, 512, 3), 0)])
def test_a_weight_norm_has_eagers_bits_on_a_gpu(shape, dim, dtype, tmp_path):
    inputs = in_dtype((tensor(*shape), tensor(*_gains(shape, dim))), dtype)
    one, _ = _pass(_function(dim), inputs, tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


def test_weight_norms_are_left_to_eager_where_no_gpu_has_confirmed_them():
    made = sample(variant(_function(0), tensor(6, 5, 8), tensor(6, 1, 1)))
    levels = dict.fromkeys(float_dtypes(made.variants).values(), Rounding.EXACT)
    assumed, confirmed = (Distill().task(made, ANY, levels, *given) for given in ((), (lambda order: True,)))
    assert not any("weight_norm" in pattern for pattern in assumed.gains())
    assert any("weight_norm" in pattern for pattern in confirmed.gains())


def test_a_program_that_is_alone_on_its_multiprocessor_has_more_loads_under_way(tmp_path):
    """Eight blocks of eager's have all columns of typical-57a066cb9183, 576 elements a thread."""
    few, many = (
        _pass(_function(1), in_dtype((tensor(36864, n), tensor(1, n)), "bfloat16"), tmp_path / str(n))[1]
        for n in (128, 8192)
    )
    assert "range(0, 36864, 32 * COLUMNS)" in few and "range(0, 36864, 8 * COLUMNS)" in many

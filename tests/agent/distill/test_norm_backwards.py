"""The backwards of layer norm and batch norm: sums in the order of eager's CUDA kernels, and their gradients."""

from dataclasses import replace

import pytest
import torch

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.eager.emulated_sums import fused, in_turn, rows_of
from agent.distill.eager.op_effects import Addition
from agent.distill.eager.sum_order import Deal, SumOrder, order_of
from agent.distill.static import Distill
from tests.agent.distill.test_ordered import _pass, _rounded_twice, _wide
from tests.agent.support import ANY, in_dtype, sample, tensor, variant

FLOAT32, BFLOAT16 = torch.float32, torch.bfloat16
ALL = [True, True, True]


def _order(op, shape, dims, dtype=FLOAT32):
    return order_of(Addition(op, dtype, shape, torch.empty(shape, device="meta").stride(), dims))


def _backward_of_layer_norm(columns):
    def function(grad, x, mean, inverse, w, b):
        found = torch.ops.aten.native_layer_norm_backward.default(grad * 2.0, x, [columns], mean, inverse, w, b, ALL)
        return found[0], found[1], found[2]

    return function


def _backward_of_batch_norm(grad, x, w, mean, inverse, running):
    grad = torch.ops.aten.threshold_backward.default(grad, x, 0)
    statistics = running, running, mean, inverse
    found = torch.ops.aten.native_batch_norm_backward.default(grad, x, w, *statistics, True, 1e-5, ALL)
    return found[0], found[1], found[2]


def _layer_norm_inputs(rows, columns, dtype="float32"):
    inputs = in_dtype((tensor(rows, columns), tensor(rows, columns), tensor(columns), tensor(columns)), dtype)
    return (*inputs[:2], tensor(rows, 1), tensor(rows, 1), *inputs[2:])


def _batch_norm_inputs(*shape, dtype=FLOAT32):
    name = str(dtype).removeprefix("torch.")
    grad, x, w, running = in_dtype((tensor(*shape), tensor(*shape), tensor(shape[1]), tensor(shape[1])), name)
    return grad, x, w, tensor(shape[1]), tensor(shape[1]), running


def test_the_orders_of_backwards_are_those_of_the_kernels():
    """Of `layer_norm_kernel.cu` and `Normalization.cuh` in torch 2.11."""
    assert _order("layer_norm_backward", (40, 300), (1,)) == SumOrder(300, 32, 4, 4, True, "turns")
    assert _order("layer_norm_backward", (40, 300), (0,)) == SumOrder(40, 1, 1, 1, False, "turns")
    for rows, height in ((64, 8), (200, 16), (256, 32), (5000, 32)):
        deal = Deal(-(-rows // 8), 8, 1, height)
        assert _order("layer_norm_backward", (rows, 300), (0,)) == SumOrder(
            rows, 1, height, 1, False, "turns", deal=deal
        )
    assert _order("layer_norm_backward", (10**5, 300), (0,)) is None, "several blocks share a column"
    image = SumOrder(2 * 49, 32, 16, 1, False, "turns", deal=Deal(2, 49, 64, 8))
    assert _order("batch_norm_backward", (2, 8, 7, 7), (0, 2, 3)) == image
    assert _order("batch_norm_backward", (2, 8, 40, 40), (0, 2, 3)).deal == Deal(2, 1600, 512, 1)
    assert _order("batch_norm_backward", (2, 8, 7, 7), (0, 2, 3), BFLOAT16) == replace(image, rounds=BFLOAT16)
    assert _order("batch_norm_backward", (2, 8, 7, 7), (0, 2, 3), torch.float64) is None
    assert _order("batch_norm_backward", (2, 8), (0,)) is None, "as in channels-last memory"


@pytest.mark.parametrize(
    "order", [_order("batch_norm_backward", (5, 3, 700), (0, 2)), _order("layer_norm_backward", (100, 8), (0,))]
)
def test_a_deal_has_each_element_once(order):
    x = torch.arange(1.0, order.length + 1)[None, :]
    assert order.deal.places >= order.length
    assert in_turn(x, order).item() == x.sum().item()


@pytest.mark.parametrize(("rows", "columns"), [(7, 64), (3, 132), (3, 300), (63, 12), (65, 40), (130, 20), (300, 8)])
def test_a_layer_norms_backward_adds_as_eager_does(rows, columns, tmp_path, interpreter):
    one, source = _pass(_backward_of_layer_norm(columns), _layer_norm_inputs(rows, columns), tmp_path / "pass")
    assert source.count("turns_1 = ") >= 2, "four sums in two kernels"
    grad, x, w = _wide(rows, columns), _wide(rows, columns).flip(0), _wide(columns).flip(0)
    mean, inverse = _wide(rows, 1) / 64.0, _wide(rows, 1).abs().flip(0)
    found = interpreter.results(tmp_path / "pass", one, [grad, x, mean, inverse, w, torch.zeros(columns)])
    grad, apart = grad * 2.0, x - mean

    def wanted(fma):
        along, down = (_order("layer_norm_backward", (rows, columns), (d,)) for d in (1, 0))
        dot = in_turn(grad * w * apart, along, inverse.expand_as(x).contiguous(), fma)[:, None]
        inner = fma(grad, columns * w, -(inverse * apart * dot)) - in_turn(grad * w, along)[:, None]
        back = inner * (inverse * (1.0 / columns))
        slope, factor, plain = (rows_of(each, (0,)) for each in (grad * apart, inverse.expand_as(x), grad))
        return back, in_turn(slope, down, factor, fma), in_turn(plain, down)

    assert any(all(map(torch.equal, found, wanted(fma))) for fma in (fused, _rounded_twice))


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((3, 4, 7, 7), FLOAT32), ((20, 2, 5, 9), FLOAT32), ((2, 3, 30, 40), FLOAT32), ((20, 2, 5, 9), BFLOAT16)],
)
def test_a_batch_norms_backward_adds_as_eager_does(shape, dtype, tmp_path, interpreter):
    one, source = _pass(_backward_of_batch_norm, _batch_norm_inputs(*shape, dtype=dtype), tmp_path / "pass")
    assert ("add_rounded_halves(" in source) == (dtype == BFLOAT16)
    channels, order = shape[1], _order("batch_norm_backward", shape, (0, 2, 3), dtype)
    grad, x = _wide(*shape, dtype=dtype), _wide(*shape, dtype=dtype).flip(0)
    w, mean, inverse = _wide(3, channels).unbind()
    w = w.to(dtype)
    found = interpreter.results(tmp_path / "pass", one, [grad, x, w, mean, inverse, torch.zeros(channels).to(dtype)])
    grad = torch.where(x <= 0, 0.0, grad).float()
    apart = x.float() - mean.view(-1, 1, 1)
    share = 1.0 / (x.numel() // channels)

    def wanted(fma):
        plain, other = rows_of(grad, (0, 2, 3)), rows_of(apart, (0, 2, 3))
        total = in_turn(plain, order)
        rounded = order.rounds is not None
        dot = in_turn((plain * other).to(dtype).float(), order) if rounded else in_turn(other, order, plain, fma)
        scale = -(dot * share * inverse * inverse)
        slope = fma(apart, scale.view(-1, 1, 1), grad) - (total * share).view(-1, 1, 1)
        return (each.to(dtype) for each in (slope * (inverse * w.float()).view(-1, 1, 1), dot * inverse, total))

    assert any(all(map(torch.equal, found, wanted(fma))) for fma in (fused, _rounded_twice))


def _with_its_gradient(grad, x, w, mean, inverse, running):
    kept = torch.ops.aten.threshold_backward.default(grad, x, 0)
    found = torch.ops.aten.native_batch_norm_backward.default(
        kept, x, w, running, running, mean, inverse, True, 1e-5, ALL
    )
    return kept, found[0], found[1], found[2]


def test_two_launches_with_four_outputs_are_one_kernel_which_pays():
    """The host allocates as much as in eager."""
    task = Distill().task(sample(variant(_with_its_gradient, *_batch_norm_inputs(2, 256, 14, 14))), ANY)
    assert len(task.kernels()) == 1
    assert task.sure(1.0) == tuple(task.gains()) != ()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        *(
            (_backward_of_layer_norm(n), _layer_norm_inputs(m, n))
            for m, n in [(40, 64), (100, 768), (400, 96), (3000, 128)]
        ),
        (_backward_of_layer_norm(768), _layer_norm_inputs(394, 768, "bfloat16")),
        *(
            (_backward_of_batch_norm, _batch_norm_inputs(*shape, dtype=dtype))
            for shape in [(2, 64, 14, 14), (16, 32, 7, 7), (4, 8, 56, 56)]
            for dtype in (FLOAT32, torch.float16, BFLOAT16)
        ),
    ],
)
def test_backwards_have_eagers_bits_on_a_gpu(function, inputs, tmp_path):
    one, source = _pass(function, inputs, tmp_path / "pass")
    assert "turns_0" in source
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

"""Operations as they are captured: what is rounded as eager's CUDA kernels round it."""

from types import SimpleNamespace

import pytest
import torch
from torch._inductor.sizevars import SizeVarAllocator
from torch._inductor.virtualized import V

from agent.values import COLUMN, ROW, Body, Capture


@pytest.fixture
def ops():
    with V.set_graph_handler(SimpleNamespace(sizevars=SizeVarAllocator())):
        yield Capture(Body({ROW: 8, COLUMN: 1}), dict.fromkeys("xmvwb", torch.float32))


def _normalised(ops, inverse):
    x, mean, weight, shift = (ops.load(n, ROW) for n in "xmwb")
    return ops.add(ops.mul(ops.mul(ops.sub(x, mean), inverse), weight), shift)


def _text(value):
    if value.op == "load":
        return value.detail[0]
    return f"{value.op}({', '.join(map(_text, value.args))})" if value.args else str(value.detail)


def test_batch_norm_is_contracted_as_eager_does_in_either_lowering(ops):
    variance = ops.add(ops.load("v", ROW), ops.constant(1e-5, torch.float32))
    plain = _normalised(ops, ops.rsqrt(variance))
    as_in_211 = ops.mul(ops.reciprocal(ops.sqrt(variance)), ops.constant(1.0, torch.float32))
    assert _text(plain) == "fma(mul(w, sub(x, m)), rsqrt(add(v, 1e-05)), b)"
    assert _text(_normalised(ops, as_in_211)) == _text(plain)


def test_layer_norm_is_contracted_as_eager_does(ops):
    inverse = ops.rsqrt(ops.reduction(torch.float32, torch.float32, "sum", ops.load("v", ROW)))
    assert _text(_normalised(ops, inverse)) == "fma(mul(sub(x, m), rsqrt(reduce(v))), w, b)"


def test_divisions_and_roots_are_rounded_correctly(ops):
    x, v = ops.load("x", ROW), ops.load("v", ROW)
    assert ops.truediv(x, v).op == "div_rn"
    assert ops.sqrt(x).op == "sqrt_rn"
    assert ops.truediv(x, ops.constant(6.0, torch.float32)).op == "truediv"  # eager multiplies by the inverse

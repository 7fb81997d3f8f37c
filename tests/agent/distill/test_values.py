"""Operations as they are captured: what is rounded as eager's CUDA kernels round it."""

from types import SimpleNamespace

import pytest
import torch
from torch._inductor.sizevars import SizeVarAllocator
from torch._inductor.virtualized import V

from agent.distill.kernels.index_expressions import Unsupported
from agent.distill.kernels.value_graph import COLUMN, ROW, Body, Capture


@pytest.fixture
def ops():
    with V.set_graph_handler(SimpleNamespace(sizevars=SizeVarAllocator())):
        yield Capture(Body({ROW: 8, COLUMN: 1}), dict.fromkeys("xmvwb", torch.float32) | {"h": torch.float16})


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


def test_scalars_are_rounded_to_the_half_type_that_they_are_compared_in_and_nowhere_else(ops):
    x = ops.load("h", ROW)
    below, tenth = ops.lt(x, ops.constant(0.99, torch.float16)), ops.constant(0.1, torch.float32)
    assert below.args[1].detail == torch.tensor(0.99, dtype=torch.float16).item() != 0.99
    assert ops.gt(ops.load("x", ROW), tenth).args[1].detail == 0.1
    assert ops.mul(x, ops.constant(0.01, torch.float16)).args[1].detail == 0.01  # eager multiplies in float32
    with pytest.raises(Unsupported, match="used in another"):
        ops.eq(x, ops.constant(0.1, torch.float16))


def test_scans_that_neither_add_nor_multiply_are_refused():
    with V.set_graph_handler(SimpleNamespace(sizevars=SizeVarAllocator())):
        ops = Capture(Body({ROW: 2, COLUMN: 8}), {"x": torch.float32})
        x = ops.load("x", ROW * 8 + COLUMN)
        (added,) = ops.scan((torch.float32,), lambda a, b: (ops.add(a[0], b[0]),), (x,))
        assert (added.op, added.detail, added.by_column) == ("scan", "sum", True)
        for combine in (lambda a, b: (ops.maximum(a[0], b[0]),), lambda a, b: (ops.add(a[0], a[0]),)):
            with pytest.raises(Unsupported, match="neither adds nor multiplies"):
                ops.scan((torch.float32,), combine, (x,))
        with pytest.raises(Unsupported, match="neither adds nor multiplies"):
            ops.scan((torch.float32, torch.int64), lambda a, b: a, (x, x))


def test_positions_that_would_wrap_around_or_be_rounded_are_refused(ops):
    assert ops.index_expr(ROW * 2**28, torch.int64).op == "index"
    assert ops.index_expr(ROW - 2**11, torch.float16).op == "index"
    too_large = ((ROW * 2**29, torch.int64), (ROW * 20, torch.int8), (ROW + 2**11, torch.float16))
    for position, dtype in (*too_large, (ROW - 1, torch.uint8)):
        with pytest.raises(Unsupported, match="may not hold"):
            ops.index_expr(position, dtype)

"""The backward of an average pool: kernels where eager's has their bits, and library calls elsewhere."""

import pytest
import torch
import torch.nn.functional as F

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.candidates import Options, find_candidates
from agent.distill.lowered_regions import FAILURES, Sketches
from agent.distill.static import Distill
from tests.agent.distill.test_ordered import _pass
from tests.agent.support import ANY, sample, tensor, variant

FIRST = (2, 8, 6, 6)


def backward(padding, divisor=None):
    def function(grad, x):
        pooled = torch.ops.aten.avg_pool2d_backward.default(
            grad, x, [3, 3], [1, 1], [padding, padding], False, False, divisor
        )
        return (pooled * 2.0,)

    return function


def placed(size, channels_last, dtype="float32"):
    _, c, h, w = size
    return tensor(*size, dtype=dtype, stride=(c * h * w, 1, w * c, c) if channels_last else None)


def inputs(padding, channels_last, dtype="float32"):
    n, c, h, w = FIRST
    out = (n, c, h + 2 * padding - 2, w + 2 * padding - 2)
    return placed(out, channels_last, dtype), placed(FIRST, channels_last, dtype)


def sketch(padding, channels_last, dtype="float32"):
    one = variant(backward(padding), *inputs(padding, channels_last, dtype))
    return Sketches().of(one.graph, one.inputs)


def test_a_kernel_divides_each_gradient_and_rounds_the_quotient():
    values = [value for body in sketch(1, False).bodies for value in body.values()]
    assert sum(value.op == "div_rn" for value in values) == 9


def in_kernels(one):
    found = find_candidates([one], Options(margin=ANY), Sketches())
    return {one.graph.op_sequence[op] for c in found.candidates for op in c.region.ops}


def pooled_backward(kernel, padding, ceil, included, divisor):
    def function(grad, x):
        given = [kernel, kernel], [2, 2], [padding, padding], ceil, included, divisor
        return torch.ops.aten.avg_pool2d_backward.default(grad, x, *given) * 2.0

    return function


BY_A_NUMBER = [(2, 0, False, True, None), (3, 1, False, True, None), (3, 0, True, False, 7)]
"""Pools that divide by one number: what is padded counts, nothing is padded, or the divisor is given."""


def of_pooled(kernel, padding, ceil, included, divisor):
    grad = F.avg_pool2d(torch.empty(FIRST), kernel, 2, padding, ceil, included, divisor)
    function = pooled_backward(kernel, padding, ceil, included, divisor)
    return variant(function, tensor(*grad.shape), tensor(*FIRST))


@pytest.mark.parametrize("pool", BY_A_NUMBER)
def test_a_divisor_that_is_the_same_everywhere(pool, tmp_path, interpreter):
    one = of_pooled(*pool)
    assert Distill(margin=ANY).write(sample(one), tmp_path / "pass").compiler == "pass"
    assert in_kernels(one) == {"torch.ops.aten.avg_pool2d_backward.default", "operator.mul"}
    assert interpreter.problems(tmp_path / "pass", one) == []


def clipped(grad, x):
    return torch.ops.aten.avg_pool2d_backward.default(grad, x, [2, 2], [], [0, 0], True, True, None) * 2.0


def clipped_in_space(grad, x):
    given = [2, 2, 3], [2, 2, 2], [0, 0, 1], True, True, None
    return torch.ops.aten.avg_pool3d_backward.default(grad, x, *given) * 2.0


@pytest.mark.parametrize(
    ("function", "pooled", "size"),
    [(clipped, (2, 3, 5, 4), (2, 3, 9, 8)), (clipped_in_space, (2, 3, 2, 2, 4), (2, 3, 4, 4, 6))],
)
def test_what_is_divided_by_a_window_that_ends_behind_the_padding_is_left_to_eager(
    function, pooled, size, tmp_path, interpreter
):
    one = variant(function, tensor(*pooled), tensor(*size))
    assert Distill(margin=ANY).write(sample(one), tmp_path / "pass").compiler == "pass"
    assert interpreter.problems(tmp_path / "pass", one) == []
    assert in_kernels(one) == {"operator.mul"}


@pytest.mark.parametrize(
    ("padding", "channels_last", "dtype"),
    [(1, True, "float32"), (1, True, "float16"), (0, False, "float16"), (1, False, "bfloat16")],
)
def test_what_eager_computes_otherwise_is_left_to_it(padding, channels_last, dtype):
    """Its kernel for channels-last memory finds the windows without the padding. In half types it rounds quotients."""
    with pytest.raises(FAILURES, match="eager"):
        sketch(padding, channels_last, dtype)
    one = variant(backward(padding), *inputs(padding, channels_last, dtype))
    assert in_kernels(one) == {"operator.mul"}


@pytest.mark.gpu
def test_a_kernel_has_eagers_bits_on_a_gpu(tmp_path):
    one, _ = _pass(backward(1), inputs(1, False), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


@pytest.mark.gpu
@pytest.mark.parametrize("pool", BY_A_NUMBER)
def test_a_divisor_that_is_the_same_everywhere_on_a_gpu(pool, tmp_path):
    one = of_pooled(*pool)
    Distill(margin=ANY).write(sample(one), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

"""The backward of an average pool: kernels with the bits of eager's CUDA kernels, and library calls elsewhere."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.candidates import Options, find_candidates
from agent.distill.kernels.formulas.pool_backwards import avg_pool2d_backward
from agent.distill.lowered_regions import FAILURES, Sketches
from agent.distill.static import Distill
from tests.agent.distill.test_ordered import _pass
from tests.agent.support import ANY, sample, tensor, variant

FIRST = (2, 8, 6, 6)
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def as_on_a_gpu(grad, x, kernel, stride, padding, ceil, included, divisor):
    """What `AveragePool2d.cu` computes: a loop over the windows of each place, here of all channels at once."""
    kernel, step, padding = (2 * each if len(each) == 1 else each for each in (kernel, stride or kernel, padding))
    shift = (0, 0) if x.is_contiguous(memory_format=torch.channels_last) else padding
    found = torch.zeros_like(x)
    for place in itertools.product(*map(range, x.shape[2:])):
        at = [p + s for p, s in zip(place, shift, strict=True)]
        first = [0 if p < k else (p - k) // s + 1 for p, k, s in zip(at, kernel, step, strict=True)]
        end = [min(p // s + 1, pooled) for p, s, pooled in zip(at, step, grad.shape[2:], strict=True)]
        total = torch.zeros(x.shape[:2], dtype=torch.promote_types(x.dtype, torch.float32))
        for window in itertools.product(*map(range, first, end)):
            size = 1
            for w, s, p, k, n in zip(window, step, padding, kernel, x.shape[2:], strict=True):
                start = w * s - p
                stop = min(start + k, n + p)
                size *= stop - start if included else min(stop, n) - max(start, 0)
            by = torch.tensor(size if divisor is None else divisor).to(x.dtype)
            total += grad[:, :, *window] / by
        found[:, :, *place] = total.to(x.dtype)
    return found


def drawn(shape, padding, channels_last, dtype, kernel=(3, 3), stride=(1, 1), ceil=False):
    """A gradient and an input of a pool."""
    generator = torch.Generator().manual_seed(sum(shape) + padding[0])
    x = torch.randn(shape, generator=generator).to(dtype)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    pooled = F.avg_pool2d(x.float(), kernel, stride or None, padding, ceil).to(dtype)
    return torch.empty_like(pooled).copy_(torch.randn(pooled.shape, generator=generator)), x


POOLS = [
    ((3, 3), (1, 1), (1, 1), False, False, None),
    ((3, 2), (2, 1), (1, 0), True, False, None),
    ((3, 3), (2, 2), (1, 1), True, True, None),
    ((2, 2), (), (0, 0), True, False, None),
    ((4, 5), (1, 3), (2, 1), False, True, None),
    ((2, 3), (3, 4), (0, 1), False, False, None),
    ((3, 3), (1, 1), (1, 1), False, True, 7),
    ((2, 2), (1, 1), (0, 0), False, True, -3),
    ((7, 2), (3, 1), (0, 0), False, True, None),
    ((3,), (1,), (1,), False, False, None),
]
"""Windows that overlap, lie side by side or apart, that are padded or end behind the padding. What fourteen numbers are
divided by has other quotients in float16 than products."""


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("pool", POOLS)
def test_each_place_has_the_bits_of_eagers_loops(pool, channels_last):
    kernel, stride, padding, ceil, *_ = pool
    for size, dtype in itertools.product([(2, 3, 8, 7), (1, 4, 9, 9)], DTYPES):
        grad, x = drawn(size, padding, channels_last, dtype, kernel, stride, ceil)
        for scale in (1.0, 1e-6):  # of which float16 has no full digits
            have = avg_pool2d_backward(grad * scale, x, *pool)
            want = as_on_a_gpu(grad * scale, x, *pool)
            assert have.equal(want) and have.stride() == x.stride()


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


def clipped_in_space(grad, x):
    given = [2, 2, 3], [2, 2, 2], [0, 0, 1], True, True, None
    return torch.ops.aten.avg_pool3d_backward.default(grad, x, *given) * 2.0


def test_what_is_divided_by_a_window_that_ends_behind_the_padding_is_left_to_eager_in_space(tmp_path, interpreter):
    one = variant(clipped_in_space, tensor(2, 3, 2, 2, 4), tensor(2, 3, 4, 4, 6))
    assert Distill(margin=ANY).write(sample(one), tmp_path / "pass").compiler == "pass"
    assert interpreter.problems(tmp_path / "pass", one) == []
    assert in_kernels(one) == {"operator.mul"}


def test_a_place_in_many_windows_is_left_to_eager():
    def function(grad, x):
        return torch.ops.aten.avg_pool2d_backward.default(grad, x, [6, 6], [1, 1], [0, 0], False, True, None) * 2.0

    one = variant(function, tensor(2, 8, 1, 1), tensor(*FIRST))
    with pytest.raises(FAILURES, match="many windows"):
        Sketches().of(one.graph, one.inputs)


@pytest.mark.parametrize(("side", "kernels"), [(8, 1), (100, 2)])
def test_a_large_gradient_is_computed_once_for_all_its_windows(side, kernels, tmp_path):
    def function(grad, y, x):
        grad = torch.ops.aten.silu_backward.default(grad, y)
        given = [3, 3], [1, 1], [1, 1], False, False, None
        return torch.ops.aten.avg_pool2d_backward.default(grad, x, *given) + x

    one = [placed((2, 8, side, side), True, "float16")] * 3
    _, source = _pass(function, one, tmp_path / "pass")
    assert source.count("_kernel(in_") == kernels


OTHERWISE = [(1, True, "float32"), (1, True, "float16"), (0, False, "float16"), (1, False, "bfloat16")]
"""What TorchInductor computes otherwise: eager's kernel for channels-last memory finds the windows without the padding,
and in half types quotients are rounded."""


@pytest.mark.parametrize(("padding", "channels_last", "dtype"), OTHERWISE)
def test_a_kernel_has_eagers_windows_and_roundings(padding, channels_last, dtype, tmp_path, interpreter):
    one, source = _pass(backward(padding), inputs(padding, channels_last, dtype), tmp_path / "pass")
    assert "default, mul in one kernel" in source
    grad, x = drawn(FIRST, (padding, padding), channels_last, getattr(torch, dtype))
    (have,) = interpreter.results(tmp_path / "pass", one, [grad, x])
    want = as_on_a_gpu(grad, x, [3, 3], [1, 1], [padding, padding], False, False, None) * 2.0
    assert have.equal(want) and have.stride() == x.stride()


@pytest.mark.gpu
@pytest.mark.parametrize(("padding", "channels_last", "dtype"), [(1, False, "float32"), *OTHERWISE])
def test_a_kernel_has_eagers_bits_on_a_gpu(padding, channels_last, dtype, tmp_path):
    one, _ = _pass(backward(padding), inputs(padding, channels_last, dtype), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


@pytest.mark.gpu
@pytest.mark.parametrize("pool", BY_A_NUMBER)
def test_a_divisor_that_is_the_same_everywhere_on_a_gpu(pool, tmp_path):
    one = of_pooled(*pool)
    Distill(margin=ANY).write(sample(one), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

"""Columns of a kernel come in the order in which eager adds them, however TorchInductor's loops go."""

import pytest
import torch

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.eager.emulated_sums import added, rows_of
from agent.distill.eager.op_effects import Addition
from agent.distill.eager.sum_order import order_of
from agent.distill.kernels.column_order import SAME, ColumnOrder
from agent.distill.kernels.value_graph import COLUMN
from agent.distill.lowered_regions import FAILURES
from agent.distill.rewrites.sample_graphs import float_dtypes
from agent.distill.rounding import Rounding
from agent.distill.static import Distill
from tests.agent.support import ANY, sample, tensor, variant

SKETCHES = Distill().sketches


def _copied(x):
    return (x.permute(2, 1, 0) * 2.0).contiguous()


def _kept(x):
    return x.permute(2, 0, 1) * 2.0


def _padded(x):
    return torch.nn.functional.pad(x.transpose(0, 2), (2, 0)).contiguous()


def _wide(*shape):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator)
    return x * torch.exp2(6 * torch.randn(shape, generator=generator).clamp(-2, 2))


def _pass(function, shape, directory):
    made = sample(variant(function, tensor(*shape)))
    levels = dict.fromkeys(float_dtypes(made.variants).values(), Rounding.EXACT)
    task = Distill(sketches=SKETCHES).task(made, ANY, levels)
    assert task.write(task.gains(), Distill().style, directory).compiler == "pass"
    assert "ordered_sum" in "".join(file.read_text() for file in directory.glob("fuse_*.py"))
    return made.variants[0]


@pytest.mark.parametrize("dims", [(0, 1), (1, 2), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("made", [_copied, _kept, _padded])
def test_a_kernel_adds_along_the_memory_of_what_eager_adds(made, dims, tmp_path, interpreter):
    """What eager has copied it adds along the copy; TorchInductor's loops go along what was copied
    (typical-f916a968fa35 and -c006f25562c2)."""

    def function(x):
        return torch.ops.aten.sum.dim_IntList(made(x), list(dims))

    x = _wide(10, 8, 30)
    y = made(x)
    addition = Addition("sum", y.dtype, tuple(y.shape), y.stride(), dims)
    one = _pass(function, x.shape, tmp_path / "pass")
    (found,) = interpreter.results(tmp_path / "pass", one, [x])
    assert torch.equal(found, added(rows_of(y, addition.turn), order_of(addition)).view(found.shape))


def test_what_is_written_along_the_same_columns_comes_with_them(tmp_path, interpreter):
    def function(x):
        y = _copied(x)
        return y, torch.ops.aten.sum.dim_IntList(y, [0, 1], True) * y

    x = _wide(10, 8, 30)
    y = _copied(x)
    one = _pass(function, x.shape, tmp_path / "pass")
    total = added(rows_of(y, (0, 1)), order_of(Addition("sum", y.dtype, tuple(y.shape), y.stride(), (0, 1))))
    plain, scaled = interpreter.results(tmp_path / "pass", one, [x])
    assert torch.equal(plain, y) and torch.equal(scaled, total * y)


def test_numbers_of_columns_in_another_order():
    order = ColumnOrder((3, 4, 5), (4, 1, 12))
    assert not order.is_same and ColumnOrder((3, 4, 5), (20, 5, 1)).is_same and SAME.is_same
    assert ColumnOrder((3, 4, 5), (4, 1, 12)).plain() == ColumnOrder((12, 5), (1, 12)) == order.plain()
    first = [int(order.number().subs(COLUMN, n)) for n in range(7)]
    assert first == [0, 12, 24, 36, 48, 1, 13]
    for sizes in ((5, 12), (5, 3, 4), (15, 4), (60,)):
        for n in (0, 7, 33, 59):
            at = [int(c.subs(COLUMN, n)) for c in order.coordinates(sizes)]
            number = 0
            for place, size in zip(at, sizes, strict=True):
                number = number * size + place
            assert number == int(order.number().subs(COLUMN, n)), (sizes, n)


@pytest.mark.gpu
@pytest.mark.parametrize("made", [_copied, _kept, _padded])
def test_sums_have_eagers_bits_on_a_gpu(made, tmp_path):
    def function(x):
        return torch.ops.aten.sum.dim_IntList(made(x), [0, 1])

    one = _pass(function, (128, 24, 30), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


def _place_of_a_copy(x):
    turned = x.permute(2, 0, 1)
    return turned.sum((0, 1)), turned.contiguous().argmax(), x.argmin()


def _place_along_one_dimension(x):
    return (x.permute(2, 0, 1) * 2.0).argmax(1), x.sum((0, 1))


@pytest.mark.parametrize("rounding", [Rounding.ANY, Rounding.EXACT])
def test_the_place_of_an_extreme_along_one_dimension(rounding, tmp_path, interpreter):
    one = variant(_place_along_one_dimension, tensor(6, 5, 8))
    task = Distill(sketches=SKETCHES).task(sample(one), ANY, dict.fromkeys(float_dtypes([one]).values(), rounding))
    submission = task.write(task.gains(), Distill().style, tmp_path / "pass")
    assert submission.compiler == "pass", submission.reason
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_a_place_among_all_elements_is_left_to_eager_where_loops_count_otherwise():
    one = variant(_place_of_a_copy, tensor(6, 5, 8))
    with pytest.raises(FAILURES, match="another order than places"):
        SKETCHES.of(one.graph, one.inputs)

"""Regions that reduce rows, for any number of rows: which these are, and that passes compute the same."""

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from agent.distill.eager.emulated_sums import added
from agent.distill.eager.op_effects import Addition
from agent.distill.eager.orders_by_rows import confirmed_rows, order_of_rows, rows_of_same_orders
from agent.distill.eager.sum_order import ROWS_OF_OTHER_ORDERS, order_of, sum_order
from agent.distill.static import Distill
from tests.agent.distill.test_any_size import SKETCHES, _source
from tests.agent.distill.test_any_size import _directory as _written
from tests.agent.support import ANY, FLOATS, in_dtype, sample, tensor, variant


def _softmax(x):
    return F.softmax(x * 0.5, -1)


def _masked(x, m):
    return F.softmax(x + m, -1)


def _layer_norm(x, y, w, b):
    added = x + y
    return F.layer_norm(added, (24,), w, b, 1e-5), added


def _embedded(i, t, x, w, b):
    return F.layer_norm(F.embedding(i, t) + x, (24,), w, b, 1e-5)


def _gated(x, g):
    return torch.softmax(x * torch.sigmoid(g)[..., None], -1)


def _rms_norm(x, w):
    h = x.to(torch.float32)
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w


def _sum(x):
    return (x * x).sum(-1)


def _kept_sum(x):
    return (x * x).sum(-1, keepdim=True) + 1.0


def _pooled(x, m, v, w, b):
    return F.adaptive_avg_pool2d(F.relu(F.batch_norm(x, m, v * v, w, b, False, 0.1, 1e-5)), 1)


def _places(*shape, stride=None):
    return tensor(*shape, dtype="int64", low=0, high=8, stride=stride)


def _halves(*shapes):
    return tuple(tensor(*shape, dtype="float16") for shape in shapes)


NORM = tensor(2, 5, 24), tensor(2, 5, 24), tensor(24), tensor(24)
EMBEDDED = _places(1, 5, stride=(99, 1)), tensor(9, 24), tensor(2, 5, 24), *NORM[2:]
CHANNELS = (tensor(2, 6, 4, 3), *(tensor(6) for _ in range(4)))
SUMMED = (tensor(2, 16, 64),)


@pytest.mark.parametrize(
    ("function", "inputs", "others"),
    [
        (_softmax, (tensor(4, 8, 10),), [(tensor(1, 3, 10),), (tensor(9, 15, 10),)]),
        (_masked, (tensor(2, 3, 5, 7), tensor(2, 1, 1, 7)), [(tensor(3, 2, 9, 7), tensor(3, 1, 1, 7))]),
        (_layer_norm, NORM, [(*(tensor(*lead, 24) for _ in "xy"), *NORM[2:]) for lead in ((1, 1), (5, 27))]),
        (_embedded, EMBEDDED, [(_places(1, 3), tensor(9, 24), tensor(7, 3, 24), *NORM[2:])]),
        (_gated, (tensor(4, 8, 10), tensor(4, 8)), [(tensor(3, 5, 10), tensor(3, 5))]),
        (_rms_norm, _halves((2, 16, 136), (136,)), [_halves((5, 7, 136), (136,)), _halves((1, 16, 136), (136,))]),
        (_sum, (tensor(4, 12),), [(tensor(3, 12),), (tensor(4099, 12),)]),
        (_kept_sum, SUMMED, [(tensor(1, 17, 64),), (tensor(5, 7, 64),)]),
        (_pooled, CHANNELS, [(tensor(3, 9, 4, 3), *(tensor(9) for _ in range(4)))]),
    ],
)
def test_other_numbers_of_rows_have_a_kernel(function, inputs, others, tmp_path, interpreter):
    directory = _directory(function, inputs, tmp_path)
    for other in others:
        assert interpreter.problems(directory, variant(function, *other)) == []
        calls = interpreter.other_calls(directory, variant(function, *other))
        assert any("eager alone" in text for text in calls), "the kernel's"


@pytest.mark.parametrize(
    ("function", "inputs", "other"),
    [
        (_kept_sum, (tensor(1, 600, 600000),), (tensor(1, 3, 600000),)),  # several of eager's blocks share a row
        (_kept_sum, SUMMED, (tensor(35, 64),)),
        (_kept_sum, SUMMED, (tensor(5, 7, 60),)),
        (_kept_sum, SUMMED, (tensor(5, 7, 64, stride=(64, 320, 1)),)),
        (_kept_sum, SUMMED, (tensor(0, 7, 64),)),
        (_embedded, EMBEDDED, (_places(1, 3), tensor(10, 24), tensor(7, 3, 24), *NORM[2:])),
        (_embedded, EMBEDDED, (_places(7, 3), tensor(9, 24), tensor(7, 3, 24), *NORM[2:])),
        (_masked, (tensor(2, 3, 5, 7), tensor(2, 1, 1, 7)), (tensor(3, 2, 9, 7), tensor(1, 1, 1, 7))),
        (_masked, (tensor(2, 3, 5, 7), tensor(2, 1, 1, 7)), (tensor(3, 2, 9, 7), tensor(3, 1, 1, 1))),
    ],
)
def test_all_others_get_library_calls(function, inputs, other, tmp_path, interpreter):
    directory = _directory(function, inputs, tmp_path)
    assert interpreter.other_calls(directory, variant(function, *other)) == []


def test_few_rows_are_added_in_eagers_order_of_so_few(tmp_path, interpreter):
    directory, x, seen = _directory(_sum, (tensor(16, 768),), tmp_path), torch.sin(torch.arange(16.0 * 768)), []
    for rows in (16, 15, 7):
        given = x.view(16, 768)[:rows]
        seen.append(added(given * given, sum_order((rows, 768), (768, 1), (1,), torch.float32)))
        (found,) = interpreter.results(directory, variant(_sum, tensor(rows, 768)), [given])
        assert torch.equal(found, seen[-1])
    assert not torch.equal(seen[0][:15], seen[1]) and not torch.equal(seen[1][:7], seen[2])


def test_a_dtype_that_no_variant_has_gets_its_own_order(tmp_path, interpreter):
    directory = _directory(_layer_norm, NORM, tmp_path)
    for dtype in FLOATS:
        other = variant(_layer_norm, *in_dtype((tensor(3, 7, 24), tensor(3, 7, 24), *NORM[2:]), dtype))
        assert interpreter.problems(directory, other) == []
        assert any("eager alone" in text for text in interpreter.other_calls(directory, other)), "the kernel's"


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: torch.softmax(x, 0), (4, 8)),  # rows lie across memory
        (lambda x: torch.softmax(x.view(2, 2, 8), -1).view(4, 8), (4, 8)),
        (lambda x: torch.softmax(torch.tril(x), -1), (4, 8)),  # a row's number decides
        (lambda x: x.sum((1, 2), keepdim=True).relu(), (4, 1, 8)),  # an axis of the rows is reduced, too
        (lambda x: x.float() * x.sum(), (4, 8)),
    ],
)
def test_what_depends_on_other_rows_or_their_number_has_no_kernel(function, shape, tmp_path):
    Distill(margin=ANY, sketches=SKETCHES).write(sample(variant(function, tensor(*shape))), tmp_path / "pass")
    assert _source(tmp_path / "pass")
    assert "of_any_size" not in _source(tmp_path / "pass")


@pytest.mark.parametrize("op", ["mean", "norm", "softmax", "layer_norm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_order_is_the_same_up_to_the_next_number_of_rows(op, dtype):
    """Of all numbers up to the last of few, and around and between those of many."""
    bounds = [1, *ROWS_OF_OTHER_ORDERS, 2**22]
    for length in (8, 49, 160, 768, 1020, 5000, 70000, 1000000):
        for first, end in pairwise(bounds):
            orders = {
                order_of(Addition(op, dtype, (rows, length), (length, 1), (1,)))
                for rows in {first, first + 1, (first + end) // 2, end - 2, end - 1}
                if first <= rows < end
            }
            assert len(orders) == 1


def test_the_numbers_of_rows_are_those_of_eagers_order():
    addition = Addition("sum", torch.float32, (4, 8, 2, 32), (512, 64, 32, 1), (2, 3))
    order = order_of(addition)
    assert order_of_rows(order, 64, 32) == order
    spans = rows_of_same_orders([order.without_idle()], 64, 5000)
    assert spans == ((16, 5001),)
    assert rows_of_same_orders([order.without_idle()], 64, 2**30) == ((16, 2**23),), "of 2 GiB eager makes parts"
    assert order_of_rows(order, 64, 15).without_idle() != order.without_idle()
    across = Addition("sum", torch.float32, (32, 64), (1, 32), (1,))
    assert rows_of_same_orders([order_of(across)], 64, 5000) == ()


def test_numbers_of_rows_whose_order_is_not_confirmed_get_library_calls(tmp_path):
    """Asked are the fewest rows of a range, and the fewest of the second part that the formula tells apart."""
    order = order_of(Addition("sum", torch.float32, (32, 64), (64, 1), (1,)))
    spans, asked = ((1, 2), (16, 5001)), []

    def confirms(one):
        asked.append(one.addition.shape[0])
        return asked[-1] != 1

    assert confirmed_rows(spans, [order], 64, confirms) == ((16, 5001),)
    assert asked == [1, 16, 32]
    one, author = sample(variant(_kept_sum, tensor(2, 60, 64))), Distill(margin=ANY, sketches=SKETCHES)
    author.write(one, tmp_path / "own", lambda order: order.addition.shape == (2, 60, 64))
    author.write(one, tmp_path / "large", lambda order: order.addition.shape[0] != 1)
    author.write(one, tmp_path / "all")
    assert "_kernel(" in _source(tmp_path / "own") and "of_any_size(" not in _source(tmp_path / "own")
    assert "16 <= n <" in _source(tmp_path / "large") and " 1 <= n <" not in _source(tmp_path / "large")
    assert " 1 <= n <" in _source(tmp_path / "all")


def _directory(function, inputs, tmp_path):
    directory = _written(function, inputs, tmp_path)
    assert "of_any_size(" in _source(directory)
    return directory


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (_softmax, (tensor(2, 64, 200),)),
        (_layer_norm, NORM),
        (_rms_norm, (tensor(2, 60, 768), tensor(768))),
        (_sum, (tensor(2, 60, 1024),)),
        (_kept_sum, SUMMED),
    ],
)
def test_other_numbers_of_rows_have_eagers_bits_on_a_gpu(function, inputs, dtype, tmp_path):
    from agent.ahead.quick_measure import QuickMeasure

    directory = _directory(function, inputs, tmp_path)
    others = []
    for lead in ((1, 5), (16, 1), (3, 41), (13, 401), (9, 4099)):
        of_rows = (tensor(*lead, i.shape[-1]) if len(i.shape) > 1 else i for i in inputs)
        others.append(variant(function, *in_dtype(tuple(of_rows), dtype)))
    for result in QuickMeasure(torch.device("cuda:0"))(sample(*others), directory):
        assert (result.status, result.t_min) == ("ok", -10)

"""Rows in eager's order that are shorter than a step of eager's: no places but theirs, and no loop."""

import re

import pytest
import torch
import torch.nn.functional as F

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.eager.emulated_sums import added
from agent.distill.eager.sum_order import SumOrder, sum_order
from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.rounding import Rounding
from agent.distill.search.found_families import SearchChoice
from agent.distill.search.neighbours import in_other_order
from agent.distill.source.style import Style
from tests.agent.distill.test_ordered import _pass, _wide
from tests.agent.distill.test_split_biases import _task
from tests.agent.support import in_dtype, sample, tensor, variant

ORDERS = [
    (SumOrder(32, 32, 1, 4, False), (32, 1, 1)),
    (SumOrder(60, 32, 1, 4, False), (32, 1, 2)),
    (SumOrder(90, 32, 1, 4, False), (32, 1, 4)),
    (SumOrder(20, 16, 2, 4, False), (16, 2, 1)),
    (SumOrder(12, 16, 2, 4, False), (16, 1, 1)),
    (SumOrder(5, 16, 1, 4, False, "norm"), (8, 1, 1)),
    (SumOrder(136, 32, 1, 8, True), (32, 1, 8)),
    (SumOrder(130, 64, 1, 4, True), (64, 1, 4)),
    (SumOrder(96, 32, 2, 4, True), (32, 1, 4)),
    (SumOrder(300, 32, 1, 4, False), (32, 1, 4)),
]


@pytest.mark.parametrize(("order", "left"), ORDERS)
def test_threads_and_sums_without_elements_change_nothing(order, left):
    short = order.without_idle()
    assert (short.width, short.height, short.sums) == left
    x = _wide(50, order.length)
    assert torch.equal(added(x, short), added(x, order))


def _normalized(x):
    return F.normalize(x.view(-1, 3, 32).transpose(0, 1), dim=-1)


def test_a_program_of_many_short_rows_has_no_places_but_theirs_and_loads_once(tmp_path, interpreter):
    one, source = _pass(_normalized, (tensor(4000, 96),), tmp_path / "pass")
    assert "COLUMNS=32" in source and int(re.search(r"ROWS=(\d+)", source)[1]) > 1
    assert source.count("= tl.load(") == 1 and "for start in" not in source
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_a_program_has_one_row_where_all_are_at_work_at_once_or_lanes_combine_moments(tmp_path):
    """Moments of several rows take as many instructions a row, and wait for shared memory between."""

    def norm(x):
        return F.layer_norm(x * 2.0, (96,))

    for name, function, rows in (("few", _normalized, 1000), ("moments", norm, 9000)):
        _, source = _pass(function, (tensor(rows, 96),), tmp_path / name)
        assert "ROWS=1," in source and source.count("= tl.load(") == 1


def _normed_twice(x, w, b):
    y = F.layer_norm(x.transpose(1, 2) * 2.0, (16,), w, b)
    return y, torch.rms_norm(y, (16,), w, 1e-6)


@pytest.mark.parametrize(("images", "several"), [(1, False), (3, True)])
def test_of_many_rows_of_few_lanes_a_program_has_several(images, several, tmp_path, interpreter):
    """Of 32 lanes four had something, and 3,200 programs a row each (fusible-3a67d026a0b8)."""
    one = variant(_normed_twice, *in_dtype((tensor(images, 16, 1600), tensor(16), tensor(16)), "float16"))
    task = _task(sample(one), Rounding.EXACT)
    start = SearchChoice(tuple(task.gains()), Style(LaunchLimits(lanes=True)))
    rows = []
    for number, choice in enumerate([start, *in_other_order(task, start)]):
        task.write(choice.patterns, choice.style, tmp_path / f"{number}")
        (source,) = (file.read_text() for file in (tmp_path / f"{number}").glob("fuse_*.py"))
        assert "COLUMNS=16," in source and "welford_step(" in source
        rows.append(int(re.search(r"ROWS=(\d+)", source)[1]))
    assert rows[:2] == ([16, 16] if several else [1, 16])
    if not several:
        assert interpreter.problems(tmp_path / "1", one) == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [4, 8, 16, 24, 32, 64])
@pytest.mark.parametrize("rows", [300, 6000])
def test_norms_of_few_lanes_have_eagers_bits_on_a_gpu(rows, length, dtype, tmp_path):
    def function(x, w, b):
        return F.layer_norm(x * 2.0, (length,), w, b), torch.rms_norm(x * 2.0, (length,), w, 1e-6)

    one, _ = _pass(function, in_dtype((tensor(rows, length), tensor(length), tensor(length)), dtype), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


def test_long_rows_of_many_values_are_kept_too(tmp_path, interpreter):
    """Two sweeps of four steps computed two sigmoids again in the second one."""

    def gated(x, y, w):
        gate = torch.sigmoid(w / 0.3)
        z = y * torch.sqrt(torch.clamp(torch.sigmoid(-(w / 0.3)) * (1.0 + gate), 0.001)) + gate * x
        z = z.float()
        return z, z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1e-5) * (1.0 + w)

    one, found = variant(gated, *in_dtype((tensor(2, 8192), tensor(2, 8192), tensor(8192)), "float16")), []
    given = [torch.randn(i.shape, generator=torch.Generator().manual_seed(1)).half() for i in one.inputs]
    for keeps, loads in ((True, 3 * 4), (False, (3 + 3) * 4)):
        task = _task(sample(one), Rounding.EXACT)
        task.write(task.gains(), Style(limits=LaunchLimits(keeps=keeps)), tmp_path / f"{keeps}")
        (source,) = (file.read_text() for file in (tmp_path / f"{keeps}").glob("fuse_*.py"))
        assert source.count("= tl.load(") == loads and "for start in" not in source
        found.append(interpreter.results(tmp_path / f"{keeps}", one, given))
    assert all(torch.equal(kept, again) for kept, again in zip(*found, strict=True))


@pytest.mark.parametrize("length", [5, 60])
def test_its_sums_have_the_bits_of_eagers_order(length, tmp_path, interpreter):
    def function(x):
        return x - x.sum(-1, keepdim=True)

    x = _wide(5000, length)
    one, source = _pass(function, (tensor(5000, length),), tmp_path / "pass")
    assert source.count("= tl.load(") == 1 and "for start in" not in source
    (found,) = interpreter.results(tmp_path / "pass", one, [x])
    order = sum_order(x.shape, x.stride(), (1,), torch.float32)
    assert torch.equal(found, x - added(x, order)[:, None])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("length", [5, 32, 60, 100])
def test_they_have_eagers_bits_on_a_gpu(length, dtype, tmp_path):
    def function(x):
        return F.normalize(x * 2.0, dim=-1), x - x.sum(-1, keepdim=True), x.mean(-1)

    one, _ = _pass(function, in_dtype((tensor(6000, length),), dtype), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert result.t_min == -10, result.reason


def _normed_mean(x):
    y = torch.tanh(x * 2.0)
    return y, y.mean(-1, keepdim=True)


@pytest.mark.parametrize(("rows", "columns", "warps"), [(120, 1024, 8), (500, 1024, 4), (9000, 1024, 1), (120, 256, 1)])
def test_few_programs_have_several_warps_for_a_row_of_one(rows, columns, warps, tmp_path, interpreter):
    """Eager adds such a row by one warp, whose elements others compute."""
    one, source = _pass(_normed_mean, in_dtype((tensor(rows, columns),), "bfloat16"), tmp_path / "pass")
    assert f"num_warps={warps}," in source and "ROWS=1," in source and "for start" not in source
    if rows == 120:
        x = _wide(rows, columns, dtype=torch.bfloat16) / 64
        found, mean = interpreter.results(tmp_path / "pass", one, [x])
        order = sum_order((rows, columns), (columns, 1), (1,), torch.bfloat16)
        total = added(found.float(), order) * torch.tensor(1.0 / columns)
        assert torch.equal(mean, total.bfloat16().view(rows, 1))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_of_several_warps_have_eagers_bits_on_a_gpu(dtype, tmp_path):
    one, _ = _pass(_normed_mean, in_dtype((tensor(120, 1024),), dtype), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

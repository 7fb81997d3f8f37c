"""Long rows in eager's order that a program takes in tiles of several of eager's steps."""

import pytest
import torch

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.eager.emulated_sums import added, fused, rows_of
from agent.distill.eager.op_effects import find_effects
from agent.distill.eager.sum_order import order_of
from tests.agent.distill.test_ordered import _pass, _rounded_twice, _wide
from tests.agent.support import in_dtype, sample, tensor

ROWS = 16
"""So many rows that eager has a warp for each."""
LENGTHS = [(3072, 1024), (2900, 1024), (6144, 2048), (1664, 256)]
"""Columns, and those of a tile."""


def _mean(x):
    return (x + x).float().pow(2).mean(-1, True)


def _root_mean_square(x, y, weight):
    total = x + y
    wide = total.float()
    inverse = torch.rsqrt(wide.pow(2).mean(-1, True) + 1e-6)
    return total, (wide * inverse * (1.0 + weight.float())).type_as(total)


def _norm(x):
    return torch.linalg.vector_norm(x + x, 2, -1)


def _step(one):
    (addition,) = [a for additions in find_effects(one.graph, one.inputs).additions for a in additions]
    return order_of(addition)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize(("columns", "tile"), LENGTHS)
def test_a_mean_in_tiles_is_added_in_eagers_order(columns, tile, name, tmp_path, interpreter):
    x = _wide(ROWS, columns, dtype=getattr(torch, name))
    one, source = _pass(_mean, in_dtype((tensor(ROWS, columns),), name), tmp_path / "pass")
    assert f"COLUMNS={tile}" in source and source.count("= tl.load(") == -(-columns // tile)
    order = _step(one)
    assert order.step == 128
    squares = (x + x).float().square()
    expected = added(squares, order) * (1.0 / torch.tensor(float(columns)))
    (found,) = interpreter.results(tmp_path / "pass", one, (x,))
    assert torch.equal(found.flatten(), expected)


def test_a_norm_in_tiles_is_added_in_eagers_order(tmp_path, interpreter):
    x = _wide(ROWS, 4096)
    one, source = _pass(_norm, (tensor(ROWS, 4096),), tmp_path / "pass")
    assert "COLUMNS=1024" in source
    (found,) = interpreter.results(tmp_path / "pass", one, (x,))
    rows, order = rows_of(x + x, (1,)), _step(one)
    assert any(torch.equal(found, added(rows, order, fma=f).double().sqrt().float()) for f in (fused, _rounded_twice))


def test_a_long_row_is_loaded_once(tmp_path, interpreter):
    inputs = in_dtype((tensor(ROWS, 3072), tensor(ROWS, 3072), tensor(3072)), "bfloat16")
    one, source = _pass(_root_mean_square, inputs, tmp_path / "pass")
    assert "for start in" not in source and source.count("= tl.load(") == 3 * 3
    assert "num_warps=8" in source
    assert interpreter.problems(tmp_path / "pass", one) == []


@pytest.mark.parametrize(("rows", "warps"), [(120, 8), (400, 4)])
def test_more_programs_have_less_warps(rows, warps, tmp_path):
    inputs = in_dtype((tensor(rows, 3072), tensor(rows, 3072), tensor(3072)), "bfloat16")
    _, source = _pass(_root_mean_square, inputs, tmp_path / "pass")
    assert f"COLUMNS=1024, num_warps={warps}," in source and "for start in" not in source


@pytest.mark.parametrize(("rows", "columns"), [(ROWS, 1024), (20_000, 3072)])
def test_short_rows_and_many_are_taken_step_by_step(rows, columns, tmp_path):
    _, source = _pass(_mean, (tensor(rows, columns),), tmp_path / "pass")
    assert "COLUMNS=128" in source


def test_a_row_that_a_thread_has_no_registers_for_goes_by_in_a_loop_of_tiles(tmp_path, interpreter):
    def function(a, b, c, d, weight):
        return _root_mean_square(a * b, c * d, weight)

    inputs = (*[tensor(ROWS, 7168)] * 4, tensor(7168))
    one, source = _pass(function, inputs, tmp_path / "pass")
    assert "COLUMNS=1024" in source and "for start in" in source
    assert interpreter.problems(tmp_path / "pass", one) == []


@pytest.mark.gpu
@pytest.mark.parametrize("function", [_mean, _norm])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(("columns", "rows"), [(3072, 120), (2900, 70), (6144, 400), (1664, 500), (7168, 16)])
def test_rows_in_tiles_have_eagers_bits_on_a_gpu(columns, rows, dtype, function, tmp_path):
    one, _ = _pass(function, in_dtype((tensor(rows, columns),), dtype), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_root_mean_square_norm_has_eagers_bits_on_a_gpu(dtype, tmp_path):
    inputs = in_dtype((tensor(120, 3072), tensor(120, 3072), tensor(3072)), dtype)
    one, _ = _pass(_root_mean_square, inputs, tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

"""Loads that are needed behind reductions, and shares of counts without a division."""

import runpy
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from agent.distill.eager.emulated_sums import added, rows_of
from agent.distill.eager.sum_order import sum_order
from agent.distill.kernels.helpers.thread_sums import HELPERS
from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.rounding import Rounding
from agent.distill.search.found_families import SearchChoice
from agent.distill.search.neighbours import steps
from agent.distill.source.style import Style
from passbench.policy.check import check_dir
from tests.agent.distill.test_ordered import _wide
from tests.agent.distill.test_split_biases import _task
from tests.agent.support import sample, tensor, variant


def _norm(x, w, b):
    return F.layer_norm(x * 2.0, (384,), w, b)


def _plain(x):
    return F.layer_norm(x[:, :256] * 2.0, (256,))


INPUTS = (tensor(9, 384), tensor(384), tensor(384))


def _lines(one, rounding, directory, **limits):
    task = _task(sample(one), rounding)
    task.write(task.gains(), Style(limits=LaunchLimits(**limits)), directory)
    assert check_dir(directory) == []
    (source,) = (file.read_text() for file in directory.glob("fuse_*.py"))
    return source.partition("_kernel(in_0")[2].splitlines()


@pytest.mark.parametrize("rounding", [Rounding.ANY, Rounding.EXACT])
def test_weights_are_under_way_before_a_norm_adds(rounding, tmp_path, interpreter):
    one = variant(_norm, *INPUTS)
    lines = _lines(one, rounding, tmp_path / "pass")
    (behind,) = (n for n, line in enumerate(lines) if "behind_loads(row)" in line)
    loads = [n for n, line in enumerate(lines) if "= tl.load(" in line]
    assert len(loads) == 3 and max(loads) < behind
    assert "inside = row_inside & column_inside" in "".join(lines[behind : behind + 4])
    assert interpreter.problems(tmp_path / "pass", one) == []
    assert not any("behind_loads" in line for line in _lines(one, rounding, tmp_path / "without", ahead=False))


def test_programs_that_wait_for_little_are_as_the_compiler_orders_them(tmp_path):
    plain = variant(_plain, INPUTS[0])
    assert not any("behind_loads" in line for line in _lines(plain, Rounding.EXACT, tmp_path / "plain"))
    without = _lines(variant(_norm, *INPUTS), Rounding.EXACT, tmp_path / "without", keeps=False, ahead=False)
    assert not any("behind_loads" in line for line in without)


def test_a_search_also_tries_what_the_compiler_does_with_late_loads():
    with_weights, without = (_task(sample(variant(f, *i))) for f, i in ((_norm, INPUTS), (_plain, INPUTS[:1])))
    for task, tried in ((with_weights, True), (without, False)):
        found = steps(task, SearchChoice(tuple(task.gains()), Style()))
        assert any(not choice.style.limits.ahead for choice in found) == tried


def _scaled_sums(x, y, variance):
    scale = 1.0 / torch.sqrt(variance + 1e-3)
    return (x * y).sum((0, 2, 3)), x * scale.view(1, -1, 1, 1)


@pytest.mark.parametrize("rows", [64, 65])
def test_square_roots_of_rows_are_computed_while_the_loads_are_under_way(rows, tmp_path, interpreter):
    """They have a jump, and loads behind it waited until what they are computed from was there. All rows of a program
    are there: that is asked once, to hold a jump."""
    one = variant(_scaled_sums, tensor(2, rows, 40, 9), tensor(2, rows, 40, 9), tensor(rows))
    lines = _lines(one, Rounding.EXACT, tmp_path / "pass")
    (root,) = (n for n, line in enumerate(lines) if "tl.sqrt_rn(" in line)
    (behind,) = (n for n, line in enumerate(lines) if "behind_loads(row)" in line)
    by_column = [n for n, line in enumerate(lines) if "= tl.load(" in line and "column" in line]
    first = [n for n in by_column if n < root]
    assert len(first) > 2 and not any(behind < n < root for n in by_column)
    assert max(first) < behind < root
    assert sum("row_inside & " in line for line in lines) == 1
    x, y, variance = _wide(2, rows, 40, 9), _wide(2, rows, 40, 9).flip(0), torch.rand(rows) + 0.1
    sums, scaled = interpreter.results(tmp_path / "pass", one, [x, y, variance])
    scale = 1.0 / torch.sqrt(variance + 1e-3)
    order = sum_order(tuple(x.shape), x.stride(), (0, 2, 3), torch.float32)
    assert torch.equal(sums, added(rows_of(x * y, (0, 2, 3)), order).view(rows))
    torch.testing.assert_close(scaled, x * scale.view(1, -1, 1, 1))


def _scaled_transposed(x, y, z):
    return torch.relu(x * y + z).transpose(1, 2).contiguous()


def _looked_up(table, places):
    return (table[places].view(48, 50, 40).permute(2, 0, 1).contiguous() * 2.0).unsqueeze(0)


PLACES = tensor(2400, dtype="int64", low=0.0, high=95.0)


@pytest.mark.parametrize(
    ("function", "inputs", "jumps"),
    [(_scaled_transposed, (tensor(2, 64, 160),) * 3, 1), (_looked_up, (tensor(96, 40), PLACES), 2)],
)
def test_a_tile_has_its_loads_under_way_before_it_computes(function, inputs, jumps, tmp_path, interpreter):
    """Those that wait for others behind a jump of their own."""
    one = variant(function, *inputs)
    lines = _lines(one, Rounding.EXACT, tmp_path / "pass")
    loads = [n for n, line in enumerate(lines) if "= tl.load(" in line]
    behind = [n for n, line in enumerate(lines) if "behind_loads(tl.program_id(0)" in line]
    assert len(behind) == jumps and max(loads) < behind[-1]
    assert (min(behind) < max(loads)) == (jumps == 2)
    assert all("there" in line for line in lines if "tl.store(" in line)
    assert interpreter.problems(tmp_path / "pass", one) == []
    assert not any("there" in line for line in _lines(one, Rounding.EXACT, tmp_path / "without", ahead=False))


def test_a_tile_of_one_load_has_nothing_to_keep_ahead_and_leaves_no_multiprocessor_one_program(tmp_path):
    """144 programs of 32 × 64 elements took longer than 288 of 32 × 32 (fusible-a929d23320ee)."""
    one = variant(lambda x: x.transpose(0, 1).contiguous() * 2.0, tensor(1152, 256))
    lines = _lines(one, Rounding.EXACT, tmp_path / "pass")
    assert not any("behind_loads" in line for line in lines)
    (launch,) = (line for line in lines if "Launch(" in line)
    assert "(288,), ROWS=32, COLUMNS=32," in launch


def _across(x, w, y):
    return x + w * y.transpose(1, 2)


def test_a_tile_loads_first_what_lies_the_other_way_than_what_it_writes(tmp_path, interpreter):
    """Triton converted the layout of the first load before it made the others, and that of the result back: 2,580
    cycles in place of 1,010, by counts as in `sweep_turns.py` (fusible-54d737011191)."""
    one = variant(_across, tensor(2, 60, 512), tensor(512), tensor(2, 512, 60))
    loads = [line for line in _lines(one, Rounding.EXACT, tmp_path / "pass") if "= tl.load(" in line]
    assert len(loads) == 3 and "column * 60 +" in loads[0] and not any("column * 60 +" in each for each in loads[1:])
    assert interpreter.problems(tmp_path / "pass", one) == []


def _pooled(grad, x):
    return torch.ops.aten.avg_pool2d_backward.default(grad, x, [3, 3], [1, 1], [1, 1], False, False, None) - grad


def test_loads_where_masks_are_computed_of_places_come_before_the_first_division(tmp_path):
    """A division has a jump: nine loads of a pool's windows waited for one another."""
    source = _lines(variant(_pooled, tensor(2, 8, 16, 16), tensor(2, 8, 16, 16)), Rounding.EXACT, tmp_path / "pass")
    loads = [n for n, line in enumerate(source) if "= tl.load(" in line]
    divisions = [n for n, line in enumerate(source) if "tl.div_rn(" in line]
    assert len(loads) >= 9 and divisions and max(loads) < min(divisions)


def _single(x):
    """A fraction as the nearest float32."""
    near = np.float32(float(x))
    around = [near, np.nextafter(near, np.float32(0)), np.nextafter(near, np.float32(9))]
    return min(around, key=lambda y: (abs(Fraction(float(y)) - x), int(y.view(np.uint32)) & 1))


@pytest.mark.parametrize("off", [-2, -1, 0, 1, 2])
def test_a_share_of_a_count_is_that_of_a_division(off):
    """From quotients that are up to two units in the last place off, as those of PTX's `div.full` are."""
    draw = np.random.default_rng(0)
    for n in [*range(1, 600), *map(int, draw.integers(600, 2**24 - 1, 300))]:
        about = want = _single(Fraction(1, n))
        for _ in range(abs(off)):
            about = np.nextafter(about, np.float32(0 if off < 0 else 9))
        about = Fraction(float(about))
        wrong = Fraction(float(_single(1 - n * about))) if n * about != 1 else Fraction(0)
        assert _single(wrong * about + about) == want


def test_a_part_of_a_count_is_that_of_a_division():
    draw = np.random.default_rng(0)
    pairs = [(part, whole) for whole in range(1, 60) for part in range(1, whole + 1)]
    pairs += [(int(min(pair)), int(max(pair))) for pair in draw.integers(1, 2**23, (500, 2))]
    for part, whole in pairs:
        share = Fraction(float(_single(Fraction(1, whole))))
        about = Fraction(float(_single(part * share)))
        wrong = Fraction(float(_single(part - whole * about))) if part != whole * about else Fraction(0)
        assert _single(about + wrong * share) == _single(Fraction(part, whole))


@pytest.mark.gpu
def test_a_share_of_a_count_is_that_of_a_division_on_a_gpu(tmp_path):
    text = "import triton\nimport triton.language as tl\n\n" + HELPERS["share_of"] + HELPERS["part_of"] + _SHARES
    (tmp_path / "shares.py").write_text(text)
    shares = runpy.run_path(str(tmp_path / "shares.py"))["shares"]
    counts = torch.arange(1, (1 << 22) + 1, device="cuda").float()
    parts = torch.floor(torch.rand_like(counts) * counts)
    found = torch.empty_like(counts), torch.empty_like(counts)
    shares[(1 << 12,)](counts, parts, *found, BLOCK=1024, enable_fp_fusion=False)
    assert torch.equal(found[0], 1.0 / counts) and torch.equal(found[1], parts / counts)


_SHARES = """

@triton.jit
def shares(counts, parts, out, out_parts, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    count = tl.load(counts + index)
    tl.store(out + index, share_of(count))
    tl.store(out_parts + index, part_of(tl.load(parts + index), count))
"""

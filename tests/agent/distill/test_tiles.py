"""Kernels without reductions that would read or write with gaps have columns; all others are flat."""

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch.utils._sympy.functions import FloorDiv, Identity, ModularIndexing

from agent.distill.kernels.launch_configs import LaunchLimits, choose
from agent.distill.kernels.schedule import distance
from agent.distill.kernels.value_graph import ROW
from agent.distill.lowered_regions import Sketches
from agent.distill.search.found_families import SearchChoice
from agent.distill.search.neighbours import steps
from agent.distill.source.style import Style
from agent.distill.static import Distill
from passbench.policy.check import check_dir
from tests.agent.support import ANY, in_dtype, sample, tensor, variant

SKETCHES = Sketches()
"""What has been lowered is known to all tests of this file."""


def _transposed(x, y):
    """Read in order, written with gaps."""
    return torch.relu(x + y).transpose(1, 2).contiguous()


def _windows(x, y):
    """One operand, of which channels come first in memory, is read with gaps; written in order."""
    return (x + y).reshape(2, 4, 8, 4, 8, 40).permute(0, 1, 3, 2, 4, 5).reshape(32, 64, 40)


def _both(x, y):
    """Read with gaps by one order and written with gaps by another."""
    return (x.transpose(1, 2) * y).permute(2, 0, 1).contiguous()


def _looked_up(table, places):
    """A table's rows, as a bias of heads by the distance between two positions: written with gaps, or read so."""
    return (table[places].view(48, 50, 40).permute(2, 0, 1).contiguous() * 2.0).unsqueeze(0)


def _places(*shape):
    return tensor(*shape, dtype="int64", low=0.0, high=96.0)


def _interpolated(x, y):
    """Four places are read, which are computed of a row's number."""
    return F.interpolate(x, (16, 16), mode="bilinear") + y


CHANNELS_FIRST = tensor(2, 32, 32, 40, stride=(40960, 32, 1, 1024))
STRIDED = {
    "transposed": (_transposed, (tensor(1, 300, 257), tensor(1, 300, 257))),
    "windows": (_windows, (CHANNELS_FIRST, tensor(1, 32, 32, 40))),
    "interpolated": (_interpolated, (tensor(2, 40, 8, 8, stride=(2560, 1, 320, 40)), tensor(2, 40, 16, 16))),
    "both": (_both, (tensor(3, 130, 200), tensor(3, 200, 130))),
    "looked up": (_looked_up, (tensor(97, 40), _places(2400))),
}
IN_ORDER = {
    "small": (_transposed, (tensor(1, 30, 256), tensor(1, 30, 256))),
    "in order": (lambda x, y: torch.relu(x + y), (tensor(300, 257), tensor(300, 257))),
    "looked up in order": (lambda x, i: x[i] * 2.0, (tensor(97, 40), _places(2400))),
    "few heads": (
        lambda x, i: x[i].view(200, 200, 4).permute(2, 0, 1).contiguous() * 2.0,
        (tensor(97, 4), _places(40_000)),
    ),
    "a table": (lambda x, y: x * y.transpose(0, 1).contiguous(), (tensor(16, 96, 64), tensor(64, 96))),
}


def _source(one, directory, limits=None):
    submission = Distill(margin=ANY, sketches=SKETCHES, style=Style(limits or LaunchLimits())).write(
        sample(one), directory
    )
    assert submission.compiler == "pass", submission.reason
    return "".join(file.read_text() for file in directory.glob("fuse_*.py"))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", STRIDED)
def test_strided_accesses_are_tiled(name, dtype, tmp_path, interpreter):
    function, inputs = STRIDED[name]
    one = variant(function, *in_dtype(inputs, dtype))
    source = _source(one, tmp_path / "pass")
    assert "% tl.cdiv(" in source
    assert "for start in" not in source
    assert check_dir(tmp_path / "pass") == []
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_a_search_may_leave_the_columns_out(tmp_path, interpreter):
    one = variant(_transposed, *STRIDED["transposed"][1])
    assert "COLUMNS" not in _source(one, tmp_path / "pass", LaunchLimits(tiles=False))
    assert interpreter.problems(tmp_path / "pass", one) == []
    large = variant(_transposed, *2 * (tensor(8, 2048, 1024),))
    task = Distill(sketches=SKETCHES).task(sample(large), ANY)
    start = SearchChoice(tuple(task.gains()), Style())
    assert Style(LaunchLimits(tiles=False)) in [choice.style for choice in steps(task, start)]


@pytest.mark.parametrize("name", IN_ORDER)
def test_all_others_are_flat(name, tmp_path, interpreter):
    function, inputs = IN_ORDER[name]
    one = variant(function, *inputs)
    assert "COLUMNS" not in _source(one, tmp_path / "pass")
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_a_distance_in_memory_is_told_where_it_is_a_number():
    assert distance(FloorDiv(Identity(ROW), 4) + 3 * ModularIndexing(ROW, 1, 4), 1) == 3
    assert distance(FloorDiv(Identity(ROW), 4) + 3 * ModularIndexing(ROW, 1, 4), 8) == 2
    assert distance(sympy.Function("unknown")(ROW), 1) == 0


@pytest.mark.parametrize(
    ("function", "inputs", "along_columns"),
    [
        (lambda x, g: (x * g).sum((0, 2, 3)), (tensor(2, 8, 64, 40), tensor(2, 8, 64, 40, stride=(8, 1, 0, 0))), True),
        (lambda x, g: (x * g).sum(1), (tensor(6, 256, 128), tensor(6, 256, 128)), False),
    ],
    ids=["batch and space of images, one factor by channel", "middle"],
)
def test_reductions_read_neighbours_in_memory_together(function, inputs, along_columns):
    task = Distill(sketches=SKETCHES).task(sample(variant(function, *inputs)), ANY)
    (kernel,) = [kernel for kernel in task.kernels() if kernel.columns > 1]
    tuning = choose(kernel, LaunchLimits())
    assert tuning.column_block >= 1024 and tuning.row_block == 1 if along_columns else tuning.row_block >= 16


def _shifted(x):
    """Fifteen loads, and a result that is written with gaps."""
    total = x[:, :-14]
    for n in range(1, 15):
        total = total + x[:, n : n - 14 or None]
    return total.transpose(1, 2).contiguous()


def _tiled(function, *inputs):
    task = Distill(sketches=SKETCHES).task(sample(variant(function, *inputs)), ANY)
    (kernel,) = [kernel for kernel in task.kernels() if kernel.flat is not None]
    return kernel, choose(kernel, LaunchLimits())


def test_a_tile_of_many_loads_leaves_its_threads_enough_registers(tmp_path, interpreter):
    """Fifteen loads with 32 elements a thread are more than a thread's 255 registers."""
    light, large = _tiled(_transposed, *2 * (tensor(8, 2048, 256),))
    assert (large.row_block, large.column_block, large.warps) == (64, 64, 4)
    heavy, small = _tiled(_shifted, tensor(8, 2062, 256))
    assert heavy.rows * heavy.columns == light.rows * light.columns
    assert (small.row_block, small.column_block, small.warps) == (32, 32, 4)
    one = variant(_shifted, tensor(1, 314, 33))
    assert "% tl.cdiv(" in _source(one, tmp_path / "pass")
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_few_tiles_are_small():
    """Of a small tensor, so that more multiprocessors have one."""
    kernel, tuning = _tiled(_transposed, *2 * (tensor(1, 128, 256),))
    assert (tuning.row_block, tuning.column_block, tuning.warps) == (16, 32, 2)
    assert tuning.programs(kernel) >= 64


def test_a_row_of_steps_shorter_than_a_warp_shares_its_program(tmp_path, interpreter):
    """A step of four columns would leave 28 of a warp's lanes idle."""
    one = variant(lambda x: torch.softmax(x * 2.0, -1), tensor(4096, 3))
    submission = Distill(margin=ANY, sketches=SKETCHES).write(sample(one), tmp_path / "pass")
    source = "".join(file.read_text() for file in submission.pass_dir.glob("fuse_*.py"))
    (plan,) = (line for line in source.splitlines() if line.startswith("    (torch."))
    assert "ROWS=" in plan and "ROWS=1," not in plan and "ordered_sum" in source
    assert interpreter.problems(tmp_path / "pass", one) == []

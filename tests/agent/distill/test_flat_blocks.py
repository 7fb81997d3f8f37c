"""How many rows a program without columns has: few where it reads many one by one, or where programs are few."""

import pytest
import torch
import torch.nn.functional as F

from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.lowered_regions import Sketches
from agent.distill.source.style import Style
from agent.distill.static import Distill
from tests.agent.support import ANY, sample, tensor, variant

SKETCHES = Sketches()


def _double(x):
    return torch.relu(x) * 2.0


def _pooled(x):
    return torch.relu(F.max_pool2d(x, 3, 2, 1)) * 2.0


def _normed(x, mean, variance, w, b):
    return torch.relu(F.batch_norm(x, mean, variance, w, b))


def _divided(x, y):
    return torch.relu(x) / y


CHANNELS = (tensor(64),) * 4
BLOCKS = [
    (_double, (tensor(7, 64, 64),), 128),  # 224 programs, where 112 would leave some multiprocessors idle
    (_double, (tensor(40, 32, 32),), 256),
    (_double, (tensor(2, 64, 56, 56),), 1024),
    (_pooled, (tensor(2, 64, 112, 112),), 256),  # nine elements of each window, which are two apart from the next one's
    (_pooled, (tensor(32, 64, 112, 112),), 1024),  # more programs than are at work at a time
    (_normed, (tensor(2, 64, 56, 56), *CHANNELS), 512),  # a channel's numbers are read for each element
    (_normed, (tensor(32, 64, 56, 56), *CHANNELS), 1024),
    (_divided, (tensor(2, 64, 56, 56),) * 2, 512),  # a division has a jump: a thread's elements wait for one another
    (_divided, (tensor(32, 64, 56, 56),) * 2, 1024),
]


@pytest.mark.parametrize(("function", "inputs", "block"), BLOCKS)
def test_programs_have_fewer_rows_where_they_read_one_by_one_or_are_few(function, inputs, block):
    task = Distill(sketches=SKETCHES).task(sample(variant(function, *inputs)), ANY)
    ((candidate,),) = [graph.candidates for graph in task.graphs]
    (launch,) = candidate.cases[0].sketch.program(LaunchLimits()).launches
    assert (launch.kernel.tuning.row_block, launch.kernel.tuning.warps) == (block, 4)


def test_what_is_read_with_gaps_is_under_way_before_anything_is_computed(tmp_path, interpreter):
    """The windows of a pool waited for one another, as the compiler moved most of their 72 loads of a thread."""
    one = variant(_pooled, tensor(1, 4, 40, 40))
    task = Distill(sketches=SKETCHES).task(sample(one), ANY)
    task.write(task.gains(), Style(), tmp_path / "pass")
    lines = "".join(file.read_text() for file in (tmp_path / "pass").glob("fuse_*.py")).splitlines()
    loads = [n for n, line in enumerate(lines) if "= tl.load(" in line]
    (behind,) = (n for n, line in enumerate(lines) if "behind_loads(tl.program_id(0))" in line)
    assert len(loads) == 9 and max(loads) < behind
    assert interpreter.problems(tmp_path / "pass", one) == []

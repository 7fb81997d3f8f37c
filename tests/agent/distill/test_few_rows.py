"""Extremes of few long rows: nothing else is at work while a program waits for what it loads."""

import pytest
import torch

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.kernels.launch_configs import LaunchLimits
from tests.agent.distill.test_ordered import _pass
from tests.agent.distill.test_sweeps import _task
from tests.agent.support import sample, tensor, variant


def _most(x):
    return x.clamp(0).amax(1) * 2


def _kernel(rows, columns, width):
    """The kernel of the maxima over the second dimension."""
    task = _task(variant(_most, tensor(rows, columns, width)))
    ((candidate,),) = [graph.candidates for graph in task.graphs]
    (launch,) = candidate.cases[0].sketch.program(LaunchLimits()).launches
    return launch.kernel


def test_few_rows_whose_neighbours_lie_in_other_rows_have_a_program_each(tmp_path, interpreter):
    """As in typical-8e32548ea3c9."""
    one, source = _pass(_most, (tensor(2, 2304, 2, dtype="int64", low=-9, high=9),), tmp_path / "pass")
    assert "for start in" not in source and "(4,)" in source and "COLUMNS=4096" in source
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_few_programs_have_wide_steps():
    long, across = _kernel(2, 30_000, 1), _kernel(1, 4096, 64)
    assert (long.programs, long.tuning.column_block, long.tuning.warps) == (2, 8192, 16)
    assert across.programs == 4 and across.tuning.column_block >= 512 and across.tuning.warps == 16
    assert across.waits <= 8


def test_many_programs_have_short_steps():
    assert _kernel(400, 3000, 64).tuning.column_block == 64


def test_a_wide_step_finds_what_a_short_one_does(tmp_path, interpreter):
    one, source = _pass(_most, (tensor(1, 5000, 32),), tmp_path / "pass")
    assert "for start in" in source
    assert interpreter.problems(tmp_path / "pass", one) == []


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2, 2304, 2), (2, 30_000, 1), (1, 4096, 64)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_extremes_of_few_rows_are_eagers_on_a_gpu(shape, dtype, tmp_path):
    one, _ = _pass(_most, (tensor(*shape, dtype=dtype, low=-9, high=9),), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

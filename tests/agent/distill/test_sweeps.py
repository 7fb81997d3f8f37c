"""How kernels go over long rows: what a turn of a loop loads first, how many warps a program has, what it costs."""

import pytest
import torch

from agent.distill.cost import WAIT, device_us
from agent.distill.eager.emulated_sums import added, rows_of
from agent.distill.eager.sum_order import PROCESSORS, sum_order
from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.lowered_regions import Sketches
from agent.distill.rewrites.sample_graphs import float_dtypes
from agent.distill.rounding import Rounding
from agent.distill.source.style import Style
from agent.distill.static import Distill
from tests.agent.support import ANY, sample, tensor, variant

SKETCHES = Sketches()
LOOPS = LaunchLimits(keeps=False)


def _wide(*shape):
    """Numbers whose sums depend on the order."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator)
    return x * torch.exp2(6 * torch.randn(shape, generator=generator).clamp(-2, 2))


def _sums(x, y):
    return (x * y).sum((0, 2, 3))


def _task(one):
    made = sample(one)
    levels = dict.fromkeys(float_dtypes(made.variants).values(), Rounding.EXACT)
    return Distill(sketches=SKETCHES).task(made, ANY, levels)


def _program(function, *inputs):
    task = _task(variant(function, *inputs))
    ((candidate,),) = [graph.candidates for graph in task.graphs]
    return candidate.cases[0].sketch.program(LOOPS)


@pytest.mark.parametrize("plane", [(64, 112), (61, 111), (64, 104), (128, 112)])
def test_a_turn_of_a_loop_loads_all_its_steps_before_it_adds(plane, tmp_path, interpreter):
    """Also where its last turn goes beyond the last column. That of 14 steps does not, and no load has a mask there.
    What needs a single turn has no loop. A jump keeps the compiler from moving loads behind the first sums."""
    shape = (2, 3, *plane)
    one = variant(_sums, tensor(*shape), tensor(*shape))
    task = _task(one)
    assert task.write(task.gains(), Style(limits=LOOPS), tmp_path / "pass").compiler == "pass"
    source = "".join(file.read_text() for file in (tmp_path / "pass").glob("fuse_*.py"))
    lines = [line.strip() for line in source.partition("_kernel(in_0")[2].splitlines()]
    loads = [number for number, line in enumerate(lines) if "tl.load(" in line]
    products = [number for number, line in enumerate(lines) if line.startswith("mul_")]
    assert len(products) > 1 and len(loads) == 2 * len(products)
    (behind,) = (number for number, line in enumerate(lines) if "behind_loads(" in line)
    assert max(loads) < behind < min(products)
    assert any("mask=" in lines[load] for load in loads) == (plane not in ((64, 112), (128, 112)))
    assert any("for start in" in line for line in lines) == (plane == (128, 112)) == ("start" in lines[behind])
    x, y = _wide(*shape), _wide(*shape).flip(0)
    (found,) = interpreter.results(tmp_path / "pass", one, [x, y])
    order = sum_order(shape, x.stride(), (0, 2, 3), torch.float32)
    assert torch.equal(found, added(rows_of(x * y, (0, 2, 3)), order).view(found.shape))


def test_few_programs_of_long_rows_have_as_many_warps_as_their_steps_have_elements_for():
    (few,) = _program(_sums, tensor(2, 3, 64, 64), tensor(2, 3, 64, 64)).launches
    step = few.kernel.tuning.column_block
    assert few.kernel.tuning.warps == min(16, step // 32)
    (many,) = _program(_sums, tensor(2, 6000, 56, 56), tensor(2, 6000, 56, 56)).launches
    assert many.kernel.tuning.warps < few.kernel.tuning.warps
    (short,) = _program(_sums, tensor(1, 3, 8, 16), tensor(1, 3, 8, 16)).launches
    assert short.kernel.tuning.warps == 1


def test_a_program_costs_at_least_what_its_loops_wait_for():
    """A row of 6272 elements for each multiprocessor: the bytes alone would take less."""
    program = _program(_sums, tensor(2, PROCESSORS, 56, 56), tensor(2, PROCESSORS, 56, 56))
    (launch,) = program.launches
    assert launch.kernel.waits > 1
    assert device_us(program) >= WAIT * launch.kernel.waits


def _added_in_place(x, y):
    x += y
    return torch.softmax(x, -1), x


@pytest.mark.parametrize("limits", [LaunchLimits(), LOOPS])
def test_what_is_written_over_an_input_waits_for_the_last_sweep(limits, tmp_path, interpreter):
    """Each sweep reads its operands again: `typical-0834ecd0c7a9` added twice to what a softmax read."""
    one = variant(_added_in_place, tensor(4, 513), tensor(4, 513))
    task = _task(one)
    assert task.write(task.gains(), Style(limits=limits), tmp_path / "pass").compiler == "pass"
    source = "".join(file.read_text() for file in (tmp_path / "pass").glob("fuse_*.py"))
    assert source.count("exp(") == (2 if limits is LOOPS else 1) and "tl.store(in_0" in source
    assert interpreter.problems(tmp_path / "pass", one) == []

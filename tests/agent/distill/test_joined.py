"""Small kernels that need nothing of each other as one launch."""

import json
import math
from dataclasses import replace

import pytest
import torch

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.launches.side_by_side import groups, joins
from agent.distill.rewrites.sample_graphs import float_dtypes
from agent.distill.rounding import Rounding
from agent.distill.search.found_families import SearchChoice
from agent.distill.search.neighbours import alternatives, steps
from agent.distill.source.style import Style
from agent.distill.static import Distill
from passbench.policy.check import check_dir
from tests.agent.distill.search_support import attempt_by, measuring
from tests.agent.distill.test_ordered import SKETCHES
from tests.agent.support import ANY, sample, tensor, variant

JOINED = Style(LaunchLimits(one_launch=True))


def _task(one):
    levels = dict.fromkeys(float_dtypes([one]).values(), Rounding.EXACT)
    return Distill(sketches=SKETCHES).task(sample(one), ANY, levels, lambda order: True)


def _sketch(one):
    ((candidate,),) = [graph.candidates for graph in _task(one).graphs]
    return candidate.cases[0].sketch


def _written(one, directory, style=JOINED):
    """The source of the pass, and how many launches it has."""
    task = _task(one)
    assert task.write(task.gains(), style, directory).compiler == "pass"
    assert check_dir(directory) == []
    source = "".join(file.read_text() for file in directory.glob("fuse_*.py"))
    return source, source.count("(Launch(")


def _sums_and_parts(x):
    """Sums along and across rows, a copy in another order, and what has few elements."""
    return x.sum(1), x.sum(0) * 2.0, x[:, :96].t().contiguous() * 2.0, torch.sigmoid(x[:5] + 1.0)


def _one_behind_another(x):
    """Two norms, of which each waits for its own sum, and nothing for the other's."""
    rows, columns = x[:40] * x[:40].sum(0), x[40:, :64] * x[40:, :64].sum(0)
    return rows / rows.sum(), columns / columns.sum()


def _parts_of_one_memory(x, y):
    return torch.cat([x.sum(0), (x[:4] * 2.0).flatten(), y], 0), y * 3.0


CASES = {
    "sums and parts": (_sums_and_parts, (tensor(64, 256, dtype="bfloat16"),), 4, 1),
    "one behind another": (_one_behind_another, (tensor(64, 256),), 4, 2),
    "parts of one memory": (
        _parts_of_one_memory,
        (tensor(64, 256, dtype="bfloat16"), tensor(33, dtype="bfloat16")),
        3,
        2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_joined_kernels_compute_what_they_compute_alone(name, tmp_path, interpreter):
    function, inputs, kernels, launches = CASES[name]
    one = variant(function, *inputs)
    _, alone = _written(one, tmp_path / "alone", Style())
    _, together = _written(one, tmp_path / "pass")
    assert (alone, together) == (kernels, launches)
    given = [torch.randn(i.shape).to(getattr(torch, i.dtype)) for i in one.inputs]
    expected, found = (interpreter.results(tmp_path / d, one, given) for d in ("alone", "pass"))
    assert all(map(torch.equal, found, expected))


def _written_over(x):
    total = x.sum(0)
    x[:5].mul_(2.0)
    return (total,)


def _as_it_was(x):
    return x.sum(0), x[:5] * 2.0


def test_what_is_written_over_is_read_before():
    one, other = (variant(function, tensor(64, 256)) for function in (_written_over, _as_it_was))
    assert not joins(_sketch(one), LaunchLimits()) and joins(_sketch(other), LaunchLimits())


def test_kernels_that_fill_the_device_have_launches_of_their_own():
    few, many = (_sketch(variant(_as_it_was, tensor(64, columns))) for columns in (512, 2**19))
    assert [len(group) for group in groups(few, LaunchLimits())] == [2]
    assert [len(group) for group in groups(many, LaunchLimits())] == [1, 1]
    assert [piece for group in groups(many, LaunchLimits()) for piece in group] == many.tuned(LaunchLimits())


def test_what_adds_nothing_takes_the_warps_of_what_adds():
    sketch = _sketch(variant(_as_it_was, tensor(64, 512)))
    alone = {id(body): tuning for body, tuning in sketch.tuned(LaunchLimits())}
    (((added, sums), (copied, copies)),) = groups(sketch, LaunchLimits())
    before = alone[id(copied)]
    assert sums == alone[id(added)] and copies.warps == sums.warps != before.warps
    assert copies.row_block * before.warps == before.row_block * copies.warps


def test_a_search_tries_one_launch_and_several():
    """Beside its start, and beside the best so far."""
    task = _task(variant(_sums_and_parts, tensor(64, 256)))
    start = SearchChoice(tuple(task.gains()), Style())
    joined = replace(start, style=JOINED)
    assert joined in alternatives(task, start) and joined in steps(task, start) and start in steps(task, joined)
    graphs = replace(start, style=replace(start.style, captured=True))
    assert replace(graphs, style=replace(JOINED, captured=True)) in alternatives(task, graphs)
    single = _task(variant(lambda x: x.sum(1) * 2.0, tensor(64, 256)))
    start = SearchChoice(tuple(single.gains()), Style())
    assert not any(choice.style.limits.one_launch for choice in (*alternatives(single, start), *steps(single, start)))


def _apart(x, y, w):
    """What is computed of `y` reads nothing that the others read."""
    made = torch.relu(x * 2.0) @ w
    return torch.softmax(made, -1), torch.sigmoid(y).sum(0), torch.relu(y[:3] - 1.0)


APART = tensor(64, 256), tensor(40, 96), tensor(256, 32)
WHOLE = replace(JOINED, captured=True, joined=True)


def _joins(source):
    of_variants = "".join(line for line in source.splitlines() if line.startswith("    (torch."))
    return of_variants.count("(Launch(") == 2 and "elif program <" in source


def _joined_task(one):
    levels = dict.fromkeys(float_dtypes([one]).values(), Rounding.EXACT)
    return Distill(sketches=SKETCHES).task(sample(one), ANY, levels, lambda order: True, whole=True, ways=WHOLE.ways)


def test_regions_without_a_value_in_common_are_one_launch(tmp_path, interpreter):
    one = variant(_apart, *APART)
    task = _joined_task(one)
    assert task.write(task.gains(), WHOLE, tmp_path / "pass").compiler == "pass"
    assert check_dir(tmp_path / "pass") == []
    assert _joins("".join(file.read_text() for file in (tmp_path / "pass").glob("fuse_*.py")))
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_a_search_joins_regions_and_hands_them_in_when_it_goes_on_too_late(tmp_path):
    """No search begins with them, and when the answer is due there is no time to come to them again."""
    one = sample(variant(_apart, *APART))
    attempt = attempt_by(lambda _, source: 2.0 if _joins(source) else 1.5, [])
    for due in (math.inf, 0.0):
        attempt, directory = replace(attempt, due=due, state=tmp_path / "state"), tmp_path / str(due)
        assert measuring().attempt(one, directory, attempt).compiler == "pass"
        assert _joins("".join(file.read_text() for file in directory.glob("fuse_*.py")))
        (kept,) = (tmp_path / "state" / "families").iterdir()
        kept.write_text(json.dumps(json.loads(kept.read_text()) | {"finished": False}))


@pytest.mark.gpu
def test_joined_regions_have_eagers_bits_in_a_cuda_graph(tmp_path):
    one = variant(_apart, *APART)
    task = _joined_task(one)
    assert task.write(task.gains(), WHOLE, tmp_path / "pass").compiler == "pass"
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_joined_kernels_have_eagers_bits_on_a_gpu(name, dtype, tmp_path):
    function, inputs, _, launches = CASES[name]
    one = variant(function, *(replace(each, dtype=dtype) for each in inputs))
    assert _written(one, tmp_path / "pass")[1] == launches
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

"""What a region is expected to save: eager's kernels wait as a pass's do, where both add in one order."""

import pytest
import torch
import torch.nn.functional as F

from agent.distill.candidates import Options, find_candidates
from agent.distill.cost import ALLOCATION, EAGER_LAUNCH, EAGER_VIEW, KERNEL, WRAPPER
from agent.distill.lowered_regions import Sketches
from agent.distill.rounding import Rounding
from agent.distill.static import Distill
from tests.agent.support import ANY, sample, tensor, variant


def _group_norm(x):
    return F.group_norm(x, 32).relu()


def test_eagers_group_norm_goes_over_long_rows_in_turns_too():
    """It is worth a try, and not sure: no sample is to lose by it without being measured."""
    one = variant(_group_norm, tensor(2, 256, 56, 56, dtype="float16"))
    options = Options(margin=ANY, rounding=Rounding.EXACT, confirms=lambda order: True)
    (found,) = find_candidates([one], options, Sketches()).candidates
    assert found.device > 0 > found.sure


def _looked_up(ids, table, weight):
    found = F.embedding(ids, table).float()
    return found * torch.rsqrt(found.pow(2).mean(-1, keepdim=True) + 1e-5) * weight


def test_a_table_costs_what_is_read_of_it():
    """A kernel that looks rows up reads these rows alone, and so does eager."""
    ids, weight = tensor(2, 60, dtype="int64", low=0.0, high=99.0), tensor(512)
    small, large = (
        find_candidates([variant(_looked_up, ids, tensor(rows, 512), weight)], Options(margin=ANY), Sketches())
        for rows in (120, 1 << 20)
    )
    (one,), (other,) = small.candidates, large.candidates
    assert other.sure > 0 and (other.gain, other.sure, other.device) == (one.gain, one.sure, one.device)


def test_a_part_costs_no_more_than_the_part():
    def part(x, y, z):
        return x * y + z[:, :, 7]

    given = tensor(2, 64, 16), tensor(2, 64, 16)
    few, many = (
        find_candidates([variant(part, *given, tensor(2, 64, n, 16))], Options(margin=ANY), Sketches()).candidates[0]
        for n in (8, 1 << 14)
    )
    assert many.sure == few.sure and many.gain == few.gain


def _expected(function, *inputs):
    (found,) = find_candidates([variant(function, *inputs)], Options(margin=ANY), Sketches()).candidates
    return found


def test_copies_that_convert_or_rearrange_are_slow_in_eager():
    """That is told of the device alone: on the host a copy is a launch in both."""
    wide, half = tensor(256, 8192), tensor(256, 8192, dtype="float16")
    converted = _expected(lambda x: x.type(torch.float32), half)
    turned = _expected(lambda x: x.transpose(0, 1).contiguous(), wide)
    joined = _expected(lambda x: x.view(256, 64, 128).transpose(0, 1).reshape(64, -1), half)
    repeated = _expected(lambda x: x[:, None].expand(256, 4, 8192).reshape(1024, 8192), half)
    assert all(each.device > 2.0 for each in (converted, turned, joined, repeated))
    launch, views = EAGER_LAUNCH - WRAPPER - KERNEL - ALLOCATION, (0, 1, 2, 2)
    gains = [each.gain for each in (converted, turned, joined, repeated)]
    assert gains == pytest.approx([launch + EAGER_VIEW * n for n in views], abs=1e-3)
    plain = _expected(lambda x: torch.ops.aten.clone.default(x), wide)
    narrowed = _expected(lambda x: x.half(), wide)
    assert max(plain.device, narrowed.device) <= 0.0


def test_what_costs_the_host_nothing_and_saves_the_device_time_is_likely():
    """Alone it is so in a CUDA graph, where the host does not count."""
    half, weight = tensor(256, 8192, dtype="float16"), tensor(64, 8192)

    def function(x, y):
        return F.linear(x.type(torch.float32), y) * 2.0 + 1.0

    task = Distill().task(sample(variant(function, half, weight)), ANY)
    (copied,) = [pattern for pattern in task.gains() if "type" in pattern]
    assert 0.0 < task.gains()[copied] < 1.0 < task.device_gains()[copied]
    assert copied in task.likely(1.0) and len(task.likely(1.0)) == 2
    alone = Distill().task(sample(variant(lambda x: x.type(torch.float32), half)), ANY)
    assert alone.likely(1.0) == () and alone.likely_on_device(1.0) == tuple(alone.gains()) != ()


def _sum_and_relu(x, y):
    total = x + y
    return total, total.relu()


def test_a_kernel_in_place_of_one_launch_is_not_sure():
    """It may be slower than eager's, and a view that it spares the host is not worth that. Two launches as one are sure
    though the host allocates as much."""
    one = _expected(lambda x: x.transpose(0, 1).relu(), tensor(64, 64))
    assert one.gain > 1.0 > 0.0 > one.sure
    two = _expected(_sum_and_relu, tensor(64, 64), tensor(64, 64))
    assert two.sure > 1.0

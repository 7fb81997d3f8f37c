"""The author `readable`: allowed, right for what it was written for, and for shapes that it has not seen.

`tests/agent/test_families.py` has its passes for hand-written families.
"""

from types import SimpleNamespace

import torch
import torch.nn.functional as F

from agent.readable.author import Readable
from agent.readable.sizes import HostSizes
from agent.readable.task_names import named_as_in_task
from passbench.contract import write_pass_dir
from passbench.policy.check import check_dir
from tests.agent.support import FLOATS, in_dtype, sample, tensor, variant


def feed_forward(x, w, b, v, c, scale, shift):
    return F.layer_norm(F.linear(F.gelu(F.linear(x, w, b)), v, c) + x, (24,), scale, shift, 1e-5)


FEED_FORWARD = (tensor(5, 24), tensor(32, 24), tensor(32), tensor(24, 32), tensor(24), tensor(24), tensor(24))


def test_library_calls_and_the_kernels_between_them_are_one_module(tmp_path, interpreter):
    variants = [variant(feed_forward, *in_dtype(FEED_FORWARD, dtype)) for dtype in FLOATS]
    made = Readable(margin=-100.0).write(sample(*variants))
    (module,) = made.modules
    assert "captured(steps, " in module.source and module.source.count("torch.nn.functional.linear(") == 4
    assert [name in module.source for name in ("def fused_1(", "def fused_2(", "def fused_3(")] == [True, True, False]
    assert module.launches == 4 < module.eager_launches
    write_pass_dir(made.files, tmp_path / "pass")
    assert check_dir(tmp_path / "pass") == []
    for one in variants:
        assert interpreter.problems(tmp_path / "pass", one) == []


def test_eagers_own_calls_replayed():
    made = Readable(margin=-100.0).replayed(sample(variant(feed_forward, *FEED_FORWARD)))
    (module,) = made.modules
    assert "captured(steps, " in module.source and "triton" not in module.source
    assert not Readable().replayed(sample(variant(lambda x: torch.relu(x) * 2.0, tensor(4, 4)))).files


def test_few_library_calls_stay_where_they_are():
    one = variant(lambda x, w, b: F.gelu(F.linear(x, w, b)) * 2.0, *FEED_FORWARD[:3])
    (module,) = Readable(margin=-100.0).write(sample(one)).modules
    assert "linear" not in module.source and "captured" not in module.source


def padded(x):
    return F.pad(torch.relu(x) * 2.0, (1, 2)).exp()


def test_a_region_that_is_not_readable_is_replaced_in_part(tmp_path, interpreter):
    variants = [variant(padded, tensor(6, size)) for size in (40, 50)]
    made = Readable(margin=-100.0).write(sample(*variants))
    assert [module.ops for module in made.modules] == [("torch.relu", "operator.mul")]
    write_pass_dir(made.files, tmp_path / "pass")
    for one in variants:
        assert interpreter.problems(tmp_path / "pass", one) == []


def test_extremes_over_rows_are_swept_several_columns_side_by_side(tmp_path, interpreter):
    one = variant(lambda x, y: (x * y).amax(0), tensor(70, 40), tensor(70, 40))
    made = Readable(margin=-100.0).write(sample(one))
    (module,) = made.modules
    assert "for start in range(0, columns, COLUMNS):" in module.source and "column * rows + row" in module.source
    write_pass_dir(made.files, tmp_path / "pass")
    assert interpreter.problems(tmp_path / "pass", one) == []
    assert (
        interpreter.problems(tmp_path / "pass", variant(lambda x, y: (x * y).amax(0), tensor(9, 33), tensor(9, 33)))
        == []
    )


def heads(x):
    parts = x.view(2, 6, 3, 4, -1).permute(2, 0, 3, 1, 4).reshape(3, 8, 6, -1).unbind(0)
    return parts[0], parts[1], parts[2]


def test_results_that_are_parts_of_one_buffer(tmp_path, interpreter):
    """The first part begins where the buffer does, and is not all of it."""
    one = variant(heads, tensor(2, 6, 96))
    made = Readable(margin=-100.0).write(sample(one))
    assert made.files, made.reason
    write_pass_dir(made.files, tmp_path / "pass")
    assert check_dir(tmp_path / "pass") == []
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_sizes_are_found_over_all_variants():
    sizes = HostSizes([[((2, 6, 4), (24, 4, 1)), ((4,), (1,))], [((3, 6, 4), (24, 4, 1)), ((4,), (1,))]])
    assert sizes.of((48, 72)).text == "in_0.numel()"
    assert sizes.of((24, 24)).text == "in_0.shape[1] * in_0.shape[2]"
    assert sizes.of((2, 3)).text == "in_0.shape[0]" and sizes.of((4, 4)).text == "in_0.shape[2]"
    assert sizes.of((12, 18)).text == "in_0.shape[0] * in_0.shape[1]"
    assert sizes.of((7, 7)) is None and sizes.text((7, 7)) == "7" and sizes.text((7, 8)) is None
    assert sizes.shape([(2, 6, 4), (3, 6, 4)]) == "in_0.shape" and sizes.shape([(2, 1), (3, 1)]) == "(in_0.shape[0], 1)"
    assert sizes.shape([(5,), (6,)]) is None
    apart = HostSizes([[((12,), (1,)), ((15,), (1,))]])
    assert [apart.of((n,)).text for n in (144, 180)] == [
        "in_0.shape[0] * in_0.shape[0]",
        "in_0.shape[0] * in_1.shape[0]",
    ]
    assert HostSizes([[((2,), (1,)), ((4,), (1,))]]).of((8,)) is None


def test_a_joined_size_is_a_sum():
    layouts = [((2, 96, 7), (672, 7, 1)), ((2, 96, 7), (672, 7, 1)), ((7,), (1,))]
    assert HostSizes([layouts]).of((192,)).text == "in_0.shape[0] * in_0.shape[1]"
    joined = HostSizes([layouts], joins=True)
    assert joined.of((192,)).text == "in_0.shape[1] + in_1.shape[1]" and joined.of((96,)).text == "in_0.shape[1]"
    three = [((2, n), (n, 1)) for n in (5, 6, 8)]
    assert HostSizes([three], joins=True).of((19,)).text == "in_0.shape[1] + in_1.shape[1] + in_2.shape[1]"
    assert len({HostSizes([three], joins=True).of((n,)).name for n in (11, 13, 14, 19)}) == 4


def test_names_are_those_of_the_task(tmp_path, interpreter):
    def function(x, w, y, b):
        return F.relu(F.linear(x, w) * y + 1.0) * b

    one = variant(function, tensor(5, 24), tensor(32, 24), tensor(5, 32), tensor(32))
    (module,) = (made := Readable(margin=-100.0).write(sample(one))).modules
    assert "def pattern(in_2, in_3, tmp_0):\n    tmp_1 = tmp_0 * in_2\n" in module.source
    assert "def fused_kernel(in_2_ptr, in_3_ptr, tmp_0_ptr, out_0_ptr, " in module.source
    assert "[key](in_2, in_3, tmp_0, out_0)" in module.source and "return (in_2, in_3, tmp_0)" in module.source
    write_pass_dir(made.files, tmp_path / "pass")
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_both_inputs_in_the_name_of_a_product_are_named_as_in_the_task():
    region = SimpleNamespace(inputs=(0,), whole=12, value=lambda number: (9, 14)[number])
    given = "    in_0_size_0_by_in_0_size_2 = in_0.shape[0] * in_0.shape[2]\n    tmp_0 = in_0"
    found = "    in_9_size_0_by_in_9_size_2 = in_9.shape[0] * in_9.shape[2]\n    tmp_2 = in_9"
    assert named_as_in_task(given, region) == found

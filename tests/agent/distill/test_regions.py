"""Which ops are replaced together."""

from dataclasses import replace

import torch
import torch.nn.functional as F

from agent.distill.candidates import Options, find_candidates
from agent.distill.eager.op_effects import find_effects
from agent.distill.kernels.host_program import sketch
from agent.distill.lowered_regions import Sketches
from agent.distill.regions import find_regions
from agent.distill.static import Distill
from tests.agent.support import ANY, PAIR, sample, tensor, variant


def _regions(function, *inputs, excluded=()):
    one = variant(function, *inputs)
    known = find_effects(one.graph, one.inputs)
    calls = {n for n, name in enumerate(one.graph.op_sequence) if name in excluded}
    return [[one.graph.op_sequence[op] for op in region.ops] for region in find_regions(one.graph, known, calls)]


def test_a_library_call_splits_what_depends_on_it():
    def block(x, w):
        y = torch.relu(x)
        return torch.sigmoid(torch.matmul(y, w)) + y

    found = _regions(block, tensor(4, 4), tensor(4, 4), excluded=("torch.matmul",))
    assert found == [["torch.relu"], ["torch.sigmoid", "operator.add"]]


def test_an_op_joins_the_group_that_needs_it():
    def gated(x, g, w):
        gate = torch.sigmoid(g)
        return torch.matmul(x, w) * gate

    found = _regions(gated, tensor(4, 4), tensor(4, 4), tensor(4, 4), excluded=("torch.matmul",))
    assert found == [["torch.sigmoid", "operator.mul"]]


def test_views_of_inputs_that_others_read_stay_outside():
    def shared(x, w):
        flat = x.view(8, 2)
        return torch.relu(flat) + 1.0, torch.matmul(flat, w)

    found = _regions(shared, tensor(4, 4), tensor(2, 2), excluded=("torch.matmul",))
    assert found == [["torch.relu", "operator.add"]]


def test_a_read_between_keeps_a_write_apart():
    def late(x, y, w):
        a = torch.relu(x)
        product = torch.matmul(a, w)
        a += y
        return product, a

    found = _regions(late, tensor(4, 4), tensor(4, 4), tensor(4, 4), excluded=("torch.matmul",))
    assert found == [["torch.relu"], ["operator.iadd"]]


def test_tuples_stay_with_what_makes_them():
    def split(x):
        a, b = torch.relu(x).chunk(2, -1)
        return a * b

    assert _regions(split, tensor(4, 4)) == [
        ["torch.relu", ".chunk", "operator.getitem", "operator.getitem", "operator.mul"]
    ]


def test_a_tuple_of_views_stays_outside_where_groups_of_several_levels_read_it():
    def attention(x, w):
        q, k, v = torch.matmul(x, w).chunk(3, -1)
        return torch.matmul(torch.sigmoid(torch.matmul(q + 1.0, (k + 1.0).t())), v + 1.0)

    found = _regions(attention, tensor(4, 8), tensor(8, 12), excluded=("torch.matmul",))
    assert sorted(map(sorted, found)) == [[".t", "operator.add", "operator.add"], ["operator.add"], ["torch.sigmoid"]]


def test_what_is_made_without_operands_belongs_to_what_reads_it():
    def positions(x):
        return F.relu(x) + torch.arange(4, device="cpu")  # any device: a graph has only the one it runs on

    assert _regions(positions, tensor(4, 4)) == [["torch.nn.functional.relu", "torch.arange", "operator.add"]]


def test_what_would_wrap_around_stays_outside():
    def small(x):
        return F.relu(x) + torch.arange(4, device="cpu", dtype=torch.int8)

    assert _regions(small, tensor(4, 4)) == [["torch.nn.functional.relu", "operator.add"]]


def test_what_is_computed_of_constants_alone_reads_the_smallest_of_them():
    def table(x):
        rows, columns = torch.arange(9, device="cpu"), torch.arange(4, device="cpu")
        return torch.matmul(x, rows[:, None] * columns)

    found = _regions(table, tensor(4, 9), excluded=("torch.matmul",))
    assert found == [["torch.arange", "operator.getitem", "operator.mul"]]


def test_values_that_stay_on_the_host_are_read_by_no_kernel():
    """As in SAM's relative positions (typical-14a0a76927ce): eager moves such an index to the GPU, a kernel cannot."""

    def relative(x, table):
        distance = (torch.arange(4)[:, None] - torch.arange(4)[None, :] + 3).long()
        return torch.relu(x * 2.0) + table[distance].sum(-1)

    found = _regions(relative, tensor(4, 4), tensor(7, 5))
    assert found == [["operator.mul", "torch.relu", ".sum", "operator.add"]]


def test_views_alone_are_no_region():
    def moved(x):
        return x.view(2, 8).transpose(0, 1)

    assert _regions(moved, tensor(4, 4)) == []


def test_what_reads_the_same_value_is_one_group():
    """As a sum beside a sum of a view (fusible-c1c78e153ad2), which TorchInductor makes one kernel of."""

    def beside(x, w):
        return x.sum(-1), x.view(2, 1, 8).sum(-1), torch.relu(w)

    assert _regions(beside, tensor(2, 8), tensor(4)) == [[".sum", ".view", ".sum"], ["torch.relu"]]


def test_readers_of_one_value_stay_apart_where_a_library_call_lies_between():
    def around(x, w):
        y = torch.matmul(torch.relu(x), w)
        return torch.sigmoid(y) * x

    found = _regions(around, tensor(4, 4), tensor(4, 4), excluded=("torch.matmul",))
    assert found == [["torch.relu"], ["torch.sigmoid", "operator.mul"]]


def test_pixel_shuffles_of_channels_last_memory_are_contiguous_as_on_a_gpu():
    last = replace(tensor(2, 4, 6, 6), stride=(144, 1, 24, 4))
    for function, stride in (
        (lambda x: (F.pixel_shuffle(x, 2),), (144, 144, 12, 1)),
        (lambda x: (F.pixel_unshuffle(x, 2),), (144, 9, 3, 1)),
    ):
        one = variant(function, last)
        assert find_effects(one.graph, one.inputs).values[-1].stride == stride
        assert [buffer.stride for buffer in sketch(one.graph, one.inputs).allocations] == [stride]


def test_ops_that_no_kernel_can_have_together_are_kept_apart(tmp_path, interpreter):
    def shrunk(x, y):
        z = F.softshrink(x * y, 0.5)  # eager compares with a half of the type, and `elu` multiplies by the number
        return torch.sigmoid(F.elu(z, 0.5) + z) * y

    one = variant(shrunk, tensor(4, 8, dtype="float16"), tensor(4, 8, dtype="float16"))
    found = find_candidates([one], Options(margin=PAIR), Sketches())
    assert sorted(c.region.ops for c in found.candidates) == [(0, 1), (3, 4, 5)]
    assert Distill(margin=PAIR).write(sample(one), tmp_path / "pass").compiler == "pass"
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_a_tuple_that_no_kernel_makes_is_left_to_eager_and_no_more(tmp_path, interpreter):
    def best(x, y):
        highest, places = torch.cummax(x + y, 1)  # a scan of another kind than kernels know
        return torch.sigmoid(x + y) * 2.0, highest + 1.0, places + 1, torch.relu(x) * y

    one = variant(best, tensor(4, 8), tensor(4, 8))
    names = one.graph.op_sequence
    found = find_candidates([one], Options(margin=ANY), Sketches())
    inside = {op for c in found.candidates for op in c.region.ops}
    assert {names[n] for n in range(len(names)) if n not in inside} == {"torch.cummax", "operator.getitem"}
    assert Distill(margin=ANY).write(sample(one), tmp_path / "pass").compiler == "pass"
    assert interpreter.problems(tmp_path / "pass", one) == []


def test_regions_that_need_no_library_call_of_each_other_may_be_one():
    def block(x, w, y):
        made = torch.matmul(torch.relu(x), w)
        return torch.sigmoid(made), torch.tanh(y) * 2.0, torch.relu(made.sum())

    inputs = tensor(4, 4), tensor(4, 4), tensor(3)
    one = variant(block, *inputs)
    known = find_effects(one.graph, one.inputs)
    calls = {n for n, name in enumerate(one.graph.op_sequence) if name == "torch.matmul"}
    apart, joined = (find_regions(one.graph, known, calls, each) for each in (False, True))
    assert [region.ops for region in apart] == [(0,), (2, 5, 6), (3, 4)]
    assert [region.ops for region in joined] == [(0, 3, 4), (2, 5, 6)]

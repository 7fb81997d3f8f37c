"""Inputs that were no variants when a pass was written: it computes what eager computes, and never raises.

`tests/agent/test_families.py` has more of them, of each family.
"""

import pytest
import torch
import torch.nn.functional as F

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.candidates import Options, find_candidates
from agent.distill.eager.op_effects import find_effects
from agent.distill.lowered_regions import Sketches
from agent.distill.other_inputs.library_calls import freed, library_body, out_of_place, replayable, without_library_call
from agent.distill.source.style import Style
from agent.distill.static import Distill
from agent.distill.whole_graphs import whole_graph
from passbench.policy.check import check_dir
from storage.graph.record import Graph, Op, Ref, RunDevice
from tests.agent.distill.families import FAMILIES, in_steps
from tests.agent.support import ANY, PAIR, in_dtype, sample, tensor, variant

SKETCHES = Sketches()
"""What has been lowered is known to all tests of this file."""


def _write_in_place(x, y):
    x += y
    x.mul_(0.5)
    return torch.tanh(x) + y


def _write_to_a_view(x, y):
    half = x[..., 2:6]
    half += y
    return torch.sigmoid(x) * 2.0


def _write_to_own(x, y):
    z = F.batch_norm(x, y[0], y[1] * y[1], None, None, False)
    z += x
    return F.relu(z, inplace=True)


def _copy(x, y):
    x.copy_(y * 2.0)
    y.zero_()
    return x + 1.0


def _assign_to_own(x, y):
    z = (x + y).clone()
    z[..., 0] = z[..., 1] / 3
    z[1:, None, 2:4] = y[1:, None, 4:6] * 2.0
    z[x > 0.5] = -1.0
    z[0] = 0
    return torch.tanh(z)


def _assign_to_an_input(x, y):
    x[:, 1:3] = y[:, :2] * 2.0
    x[..., -1] = 4.0
    return torch.tanh(x) + y


_TO_OWN = _write_to_own, _assign_to_own


@pytest.mark.parametrize("function", [_write_in_place, _write_to_a_view, _copy, _assign_to_an_input, *_TO_OWN])
def test_writes_in_place(function, tmp_path, interpreter):
    width = 4 if function is _write_to_a_view else 8
    known = variant(function, tensor(3, 8), tensor(3, width))
    submission = Distill(margin=ANY, sketches=SKETCHES).write(sample(known), tmp_path / "pass")
    assert submission.compiler == "pass", submission.reason
    assert check_dir(tmp_path / "pass") == []
    source = "".join(path.read_text() for path in (tmp_path / "pass").glob("fuse_*.py"))
    assert ("write_into(" in source) == (function not in _TO_OWN)
    for rows, dtype in ((3, "float32"), (5, "float32"), (3, "float64"), (4, "float16")):
        one = variant(function, tensor(rows, 8, dtype=dtype), tensor(rows, width, dtype=dtype))
        assert interpreter.problems(tmp_path / "pass", one, draws=2) == []
    turned = variant(function, *map(in_steps, known.inputs))
    assert interpreter.problems(tmp_path / "pass", turned) == []


def test_assignments_to_parts_are_one_kernel_with_their_neighbours():
    one = variant(_assign_to_own, tensor(3, 8), tensor(3, 8))
    found = find_candidates([one], Options(margin=ANY), SKETCHES)
    assert [(c.region.ops, len(c.cases[0].sketch.bodies)) for c in found.candidates] == [
        (tuple(range(len(one.graph.ops))), 1)
    ]


def _assign_numbers_beyond_a_half_type(x, y):
    z = x * 2.0
    z[x > 0.5] = -1e9
    z[0, :2] = 1e9
    z[:, 3] = float("-inf")
    z[y > 0.5] = float("inf")
    return z + y


def _assign_such_numbers_to_an_input(x, y):
    x[:, 0] = float("-inf")
    x[:, 1] = -1e9
    y.fill_(float("nan"))
    return x * 2.0


def _assign_to_what_operators_make(x, y):
    z = x * 2.0
    z[1:] = y[1:]
    return z + y


@pytest.mark.parametrize(
    "function",
    [
        _assign_numbers_beyond_a_half_type,
        _assign_such_numbers_to_an_input,
        _assign_to_what_operators_make,
    ],
)
def test_assignments_of_infinite_numbers_and_to_what_only_operators_make(function, tmp_path, interpreter):
    known = variant(function, tensor(3, 8), tensor(3, 8))
    submission = Distill(margin=ANY, sketches=SKETCHES).write(sample(known), tmp_path / "pass")
    assert submission.compiler == "pass", submission.reason
    assert check_dir(tmp_path / "pass") == []
    for rows, dtype in ((3, "float32"), (5, "float32"), (4, "float16"), (4, "float64")):
        one = variant(function, tensor(rows, 8, dtype=dtype), tensor(rows, 8, dtype=dtype))
        assert interpreter.problems(tmp_path / "pass", one, draws=2) == []


def _by_places(x, y):
    z = x * 2.0
    z[[0, 2]] = y[:2]
    return z


def _by_a_mask_of_rows(x, y):
    z = x * 2.0
    z[y[:, 0] > 0] = 0.0
    return z


def _what_a_mask_takes(x, y):
    z = x * 2.0
    z[x > 0] = y[0, :1]
    return z


@pytest.mark.parametrize("function", [_by_places, _by_a_mask_of_rows, _what_a_mask_takes])
def test_other_assignments_are_left_to_eager(function):
    one = variant(function, tensor(3, 8), tensor(3, 8))
    known = find_effects(one.graph, one.inputs)
    assert {one.graph.op_sequence[n] for n in without_library_call(one.graph, known)} == {"operator.setitem"}


def test_an_empty_tensor(tmp_path, interpreter):
    function = FAMILIES["silu_mul"].function
    Distill(margin=PAIR, sketches=SKETCHES).write(
        sample(variant(function, tensor(4, 8), tensor(4, 8))), tmp_path / "pass"
    )
    assert interpreter.problems(tmp_path / "pass", variant(function, tensor(0, 8), tensor(0, 8))) == []


def test_what_host_code_may_not_call_is_found():
    def noisy(x, y):
        return F.dropout(x, 0.5, True), x + y

    one = variant(noisy, tensor(4), tensor(4))
    names = one.graph.op_sequence
    known = find_effects(one.graph, one.inputs)
    assert [names[n] for n in without_library_call(one.graph, known)] == ["torch.nn.functional.dropout"]


def test_classes_that_are_counted_out_are_not_read():
    def one_hot(x):
        return F.one_hot(x, 5).permute(1, 0, 2).float() * 2.0

    one = variant(one_hot, tensor(4, 3, dtype="int64", low=0.0, high=4.0))
    assert without_library_call(one.graph, find_effects(one.graph, one.inputs)) == set()


_RELU = "torch.nn.functional.relu"


@pytest.mark.parametrize(
    ("op", "target", "args"),
    [
        (Op("function", "operator.iadd", (Ref(0), 1), {}), "operator.add", (Ref(0), 1)),
        (Op("method", "clamp_", (Ref(0), 0.0), {}), "clamp", (Ref(0), 0.0)),
        (Op("function", "torch.ops.aten.add_.Tensor", (Ref(0), 1), {}), "torch.ops.aten.add.Tensor", (Ref(0), 1)),
        (Op("function", _RELU, (Ref(0), True), {}), _RELU, (Ref(0), False)),
        (Op("function", _RELU, (Ref(0),), {"inplace": True}), _RELU, (Ref(0),)),
    ],
)
def test_the_form_out_of_place(op, target, args):
    assert out_of_place(op) == Op(op.kind, target, args, {})


def _views(heads, eps):
    def function(x, w, b):
        rows, length, width = 2, 3, 8
        y = F.layer_norm(x * 0.5, (width,), w, b, eps)
        return torch.relu(y.view(rows, length, heads, width // heads).transpose(1, 2)) + float(heads)

    return function


def _windows(size):
    def function(x):
        return F.pad(torch.cat((x[..., size:], x[..., :size]), -1) * 2.0, (0, size)).clamp(-1.0, size)

    return function


def _cast(dtype):
    def function(x):
        return torch.tanh(x.float() * 0.0).to(dtype) + torch.ones((2, 1), dtype=dtype, device=x.device)

    return function


def _scores(scale, dim):
    def function(q, k, m):
        weights = torch.softmax(torch.matmul(q, k.transpose(-2, -1)) * scale + m, dim=dim)
        return F.dropout(weights, 0.1, False, False)

    return function


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize(
    ("known", "others", "inputs"),
    [
        (_views(2, 1e-5), [_views(4, 1e-5), _views(2, 1e-6)], (tensor(2, 3, 8), tensor(8), tensor(8))),
        (_windows(2), [_windows(3), _windows(1)], (tensor(4, 6),)),
        (_cast(torch.float16), [_cast(torch.float32), _cast(torch.float64)], (tensor(2, 5),)),
        (_scores(0.5, -1), [_scores(0.25, -1), _scores(0.5, 1)], (tensor(2, 5, 4), tensor(2, 5, 4), tensor(5, 5))),
    ],
    ids=["views", "windows", "casts", "scores"],
)
def test_other_constants_of_the_family(captured, known, others, inputs, tmp_path, interpreter):
    one = variant(known, *inputs)
    task = Distill(margin=ANY, sketches=SKETCHES).task(sample(one), ANY, whole=True)
    submission = task.write(tuple(task.gains()), Style(captured=captured), tmp_path / "pass")
    assert submission.compiler == "pass", submission.reason
    assert check_dir(tmp_path / "pass") == []
    for function in (known, *others):
        for dtype in ("float32", "float64"):
            other = variant(function, *in_dtype(inputs, dtype))
            assert interpreter.problems(tmp_path / "pass", other, draws=1) == []


def test_a_value_is_let_go_of_behind_its_last_use():
    lines = ["tmp_2 = in_0 + in_1", "tmp_3 = tmp_2 * 2", "tmp_4 = tmp_3 + tmp_2", "return tmp_4, tmp_3"]
    assert freed(lines) == [*lines[:3], "del tmp_2", lines[3]]


def _source(function, tmp_path):
    Distill(margin=ANY, sketches=SKETCHES).write(
        sample(variant(function, tensor(4, 8), tensor(4, 8))), tmp_path / "pass"
    )
    assert check_dir(tmp_path / "pass") == []
    return "".join(path.read_text() for path in sorted((tmp_path / "pass").glob("fuse_*.py")))


def test_many_calls_without_a_plan_are_replayed(tmp_path):
    def four(x, y):
        return torch.sigmoid(torch.sigmoid(x + y) * y)

    def three(x, y):
        return torch.sigmoid((x + y) * y)

    def in_place(x, y):
        x += y
        return torch.sigmoid(torch.sigmoid(x * y) * y)

    assert "return captured(library_" in _source(four, tmp_path / "four")
    assert "captured" not in _source(three, tmp_path / "three")
    assert "captured" not in _source(in_place, tmp_path / "in_place")


def test_what_waits_for_the_host_is_not_replayed():
    def listed(x, y):
        return torch.sigmoid(torch.sigmoid(x[[0, 1]] + y[[1, 0]]) * 2.0)

    def bounded(x, y):
        return torch.bucketize(torch.sigmoid(x + y), x.new_tensor([0.2, 0.5])) * 2.0

    def inverted(x, y):
        return torch.linalg.inv(torch.sigmoid(x + y)) * 2.0

    def normed(x, y):
        return torch.linalg.vector_norm(torch.sigmoid(x + y), dim=-1) * 2.0

    for function, expected in ((listed, False), (bounded, False), (inverted, False), (normed, True)):
        one = variant(function, tensor(8, 8), tensor(8, 8))
        assert replayable(one.graph, find_effects(one.graph, one.inputs)) is expected
        assert (whole_graph([one]) is not None) is expected


@pytest.mark.parametrize("number", [-3.4028234663852886e38, 0.1, -0.0, 3, True])
@pytest.mark.parametrize("dtype", [None, torch.float16, torch.int64])
def test_a_number_on_the_device_is_a_fill(number, dtype):
    """Copied from the host it could not be part of a CUDA graph."""
    given = {"device": RunDevice()} | ({} if dtype is None else {"dtype": dtype})
    if dtype is not None and abs(number) > 1e5:
        return
    graph = Graph(1, (Op("function", "torch.tensor", (number,), given),), (Ref(1),))
    one = tensor(2)
    known = find_effects(graph, (one,))
    assert replayable(graph, known)
    names = {"torch": torch, "in_0": torch.zeros(2)}
    line = library_body(graph, known).lines[0]
    exec(line.replace(line.split(" = ")[0], "found", 1), names)
    expected = torch.tensor(number, dtype=dtype)
    assert torch.equal(names["found"], expected) and names["found"].dtype == expected.dtype
    assert torch.signbit(names["found"]) == torch.signbit(expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_such_assignments_on_a_gpu(dtype, tmp_path):
    """Of a dtype that the pass has no kernels for, so that it calls the library."""
    known = variant(_assign_numbers_beyond_a_half_type, tensor(3, 8), tensor(3, 8))
    Distill(margin=ANY, sketches=SKETCHES).write(sample(known), tmp_path / "pass")
    one = variant(_assign_numbers_beyond_a_half_type, tensor(5, 8, dtype=dtype), tensor(5, 8, dtype=dtype))
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result

"""Pointwise regions for contiguous tensors of any one shape: which these are, and that passes compute the same."""

import pytest
import torch
import torch.nn.functional as F

from agent.distill.lowered_regions import Sketches
from agent.distill.static import Distill
from passbench.policy.check import check_dir
from tests.agent.support import ANY, FLOATS, in_dtype, sample, tensor, variant

SKETCHES = Sketches()
"""What has been lowered is known to all tests of this file."""


def _silu_in_place(x):
    return F.silu(x, inplace=True)


def _scaled(x, y, s):
    return F.silu(x) * y * s, (x > y) & (y < 0.5)


def _added_in_place(x, y):
    x += y
    return torch.tanh(x) * 0.5


def _dropped(x, y):
    return F.dropout(F.gelu(x.float()), 0.1, False, False).to(x.dtype) + y


def _filled(x):
    return torch.full_like(x, 3.0) + 1.0


def _biased(x, b):
    return F.gelu(x + b)


def _normed(x, m, v, w, b):
    return F.relu(F.batch_norm(x, m, v * v, w, b, False, 0.1, 1e-5))


def _gated(x, g, y):
    return x * torch.sigmoid(g) + y


CHANNELS = (tensor(2, 6, 4, 3), *(tensor(6) for _ in range(4)))
GATED = (tensor(2, 6, 4, 3), tensor(2, 6, 1, 1), tensor(4, 1))


@pytest.mark.parametrize(
    ("function", "inputs", "others"),
    [
        (_biased, (tensor(4, 8), tensor(8)), [((3, 7), (7,)), ((1, 5), (5,)), ((5, 1), (1,))]),
        (_normed, CHANNELS, [((3, 5, 2, 7), *[(5,)] * 4), ((1, 300, 1, 2), *[(300,)] * 4)]),
        (_gated, GATED, [((3, 5, 2, 7), (3, 5, 1, 1), (2, 1)), ((1, 2, 3, 1), (1, 2, 1, 1), (3, 1))]),
    ],
)
def test_tensors_that_are_spread(function, inputs, others, tmp_path, interpreter):
    directory = _directory(function, inputs, tmp_path)
    assert "inner_0" in _source(directory)
    for dtype in ("float32", "float16"):
        for shapes in others:
            other = variant(function, *(tensor(*shape, dtype=dtype) for shape in shapes))
            assert interpreter.problems(directory, other) == []
            assert any("eager alone" in text for text in interpreter.other_calls(directory, other)), "the kernel's"


@pytest.mark.parametrize(
    ("function", "inputs", "shapes", "stride"),
    [
        (_biased, (tensor(4, 8), tensor(8)), ((4, 8), (1,)), (1,)),
        (_biased, (tensor(4, 8), tensor(8)), ((4, 8), (8,)), (2,)),
        (_gated, GATED, ((2, 6, 4, 3), (2, 1, 1, 1), (4, 1)), (1, 1, 1, 1)),
        (_gated, GATED, ((2, 6, 4, 3), (2, 6, 1, 1), (1, 1)), (6, 1, 1, 1)),
        (_gated, GATED, ((2, 6, 4, 3), (2, 6, 1, 1), (4, 1)), (1, 2, 1, 1)),
    ],
)
def test_other_ways_to_be_spread_get_library_calls(function, inputs, shapes, stride, tmp_path, interpreter):
    directory = _directory(function, inputs, tmp_path, ["float32"])
    drawn = [tensor(*shape, stride=stride if n == 1 else None) for n, shape in enumerate(shapes)]
    assert interpreter.other_calls(directory, variant(function, *drawn)) == []


def _directory(function, inputs, tmp_path, dtypes=("float32",)):
    known = [variant(function, *in_dtype(inputs, dtype)) for dtype in dtypes]
    submission = Distill(margin=ANY, sketches=SKETCHES).write(sample(*known), tmp_path / "pass")
    assert submission.compiler == "pass", submission.reason
    assert check_dir(tmp_path / "pass") == []
    return tmp_path / "pass"


def _source(directory):
    return "".join(path.read_text() for path in sorted(directory.glob("fuse_*.py")))


def _of_shape(function, inputs, shape, dtype, stride=None):
    return variant(function, *(tensor(*shape, dtype=dtype, stride=stride) if i.shape else i for i in inputs))


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (_silu_in_place, (tensor(4, 8),)),
        (_filled, (tensor(4, 8),)),
        (_scaled, (tensor(4, 8), tensor(4, 8), tensor())),
        (_added_in_place, (tensor(4, 8), tensor(4, 8))),
        (_dropped, (tensor(4, 8), tensor(4, 8))),
    ],
)
def test_other_shapes_have_a_kernel(function, inputs, tmp_path, interpreter):
    directory = _directory(function, inputs, tmp_path)
    assert "of_any_size(" in _source(directory)
    for shape, dtype in (((3, 7), "float32"), ((1, 1), "float32"), ((9, 130), "float16"), ((2, 8), "bfloat16")):
        of_one = [i if i.shape else tensor(dtype=dtype) for i in inputs]
        other = _of_shape(function, of_one, shape, dtype)
        assert interpreter.problems(directory, other) == []
        assert any("eager alone" in text for text in interpreter.other_calls(directory, other)), "the kernel's"


def _in_steps(x, y):
    return torch.relu(x * y - x) + y


@pytest.mark.parametrize("known", [("float32",), ("float16",), ("float32", "bfloat16")])
def test_dtypes_that_no_variant_has_get_eagers_bits(known, tmp_path, interpreter):
    directory = _directory(_in_steps, (tensor(4, 8), tensor(4, 8)), tmp_path, known)
    for dtype in FLOATS:
        other = _of_shape(_in_steps, (tensor(4, 8), tensor(4, 8)), (9, 130), dtype)
        calls = "\n".join(interpreter.other_calls(directory, other))
        assert "eager alone: aten.relu" in calls and "differs" not in calls


def test_beside_single_precision_a_half_type_is_taken_for_the_other(tmp_path, interpreter):
    halves = [(i if n else tensor(*i.shape, dtype="float16")) for n, i in enumerate(CHANNELS)]
    directory = _directory(_normed, halves, tmp_path)
    for dtype, planned in (("bfloat16", True), ("float32", False)):
        other = variant(_normed, tensor(3, 6, 2, 5, dtype=dtype), *CHANNELS[1:])
        assert interpreter.problems(directory, other) == []
        assert (interpreter.other_calls(directory, other) != []) == planned


@pytest.mark.parametrize(
    ("shape", "stride", "told"),
    [
        ((5, 6), None, True),
        ((3, 3, 5), None, True),
        ((3, 1, 5), (5, 1, 1), True),  # as the result of a pool has them
        ((6,), None, False),
    ],
)
def test_there_may_be_more_axes_than_a_variant_has(shape, stride, told, tmp_path, interpreter):
    known = [variant(_silu_in_place, tensor(*shape)) for shape in ((2, 3, 4), (4, 8))]
    Distill(margin=ANY, sketches=SKETCHES).write(sample(*known), tmp_path / "pass")
    other = variant(_silu_in_place, tensor(*shape, stride=stride))
    assert interpreter.problems(tmp_path / "pass", other) == []
    calls = interpreter.other_calls(tmp_path / "pass", other)
    assert told != any("the pass alone: aten.silu" in text for text in calls)


@pytest.mark.parametrize(
    ("shape", "stride", "dtype"),
    [
        ((0, 8), None, "float32"),
        ((4, 8), (1, 5), "float32"),
        ((4, 8), (16, 2), "float32"),
        ((1, 8), (99, 1), "float16"),
        ((4, 8), None, "float64"),
        ((8,), None, "float32"),
    ],
)
def test_all_others_get_library_calls(shape, stride, dtype, tmp_path, interpreter):
    inputs = (tensor(4, 8), tensor(4, 8), tensor())
    directory = _directory(_scaled, inputs, tmp_path)
    of_one = [i if i.shape else tensor(dtype=dtype) for i in inputs]
    assert interpreter.other_calls(directory, _of_shape(_scaled, of_one, shape, dtype, stride)) == []
    spread = variant(_scaled, *in_dtype((tensor(4, 8), tensor(1, 8), tensor()), "float32"))
    assert interpreter.other_calls(directory, spread) == []


CHANNELS_LAST = (126, 1, 42, 6)


@pytest.mark.parametrize("known", [None, CHANNELS_LAST])
def test_axes_may_be_in_another_order_in_memory(known, tmp_path, interpreter):
    directory = _directory(_added_in_place, (tensor(2, 6, 3, 7, stride=known),) * 2, tmp_path)
    for shape, stride in (((1, 3, 4, 5), (60, 1, 15, 3)), ((2, 3, 4, 5), (5, 10, 30, 1)), ((2, 3, 4, 5), None)):
        other = variant(_added_in_place, *(tensor(*shape, stride=stride, dtype="float16") for _ in range(2)))
        assert interpreter.problems(directory, other) == []
        assert any("eager alone" in text for text in interpreter.other_calls(directory, other)), "the kernel's"
    mixed = variant(_added_in_place, tensor(2, 6, 3, 7), tensor(2, 6, 3, 7, stride=CHANNELS_LAST))
    assert interpreter.problems(directory, mixed) == [], "the kernel would read other elements"


def test_what_puts_axes_in_order_has_a_kernel_for_contiguous_tensors_alone(tmp_path, interpreter):
    def in_order(x, y):
        return torch.relu(x.contiguous()) * y.contiguous()

    directory = _directory(in_order, (tensor(4, 8), tensor(4, 8)), tmp_path)
    for stride, planned in ((None, True), ((1, 5), False)):
        other = variant(in_order, *(tensor(5, 6, stride=stride),) * 2)
        assert (interpreter.other_calls(directory, other) != []) == planned


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: torch.relu(x[:, :100]) + y,  # a part of larger tensors
        lambda x, y: torch.relu(x.view(4, 8)) + y,
        lambda x, y: torch.relu(x.t()).t() + y.sigmoid(),
        lambda x, y: torch.softmax(x, 0) + y,
        lambda x, y: torch.tril(x) * y,
        lambda x, y: F.adaptive_avg_pool1d(torch.relu(x), 8) + y,
        lambda x, y: torch.flip(x, [0]).relu() + y,
    ],
)
def test_what_a_shape_decides_has_no_kernel_for_others(function, tmp_path):
    directory = _directory(function, (tensor(4, 8), tensor(4, 8)), tmp_path, ["float32"])
    assert "of_any_size" not in _source(directory)


def test_one_row_is_not_taken_for_all():
    """A sum over one element is a copy: asked is another shape, too."""
    one = variant(lambda x, y: torch.relu(x.sum(1, keepdim=True)) + y, tensor(8, 1), tensor(8, 1))
    task = Distill(sketches=SKETCHES).task(sample(one), ANY)
    assert not any(case.any_size() for each in task.graphs for c in each.candidates for case in c.cases)


def _leaky_in_place(x):
    return F.leaky_relu(x, 0.1, inplace=True)


@pytest.mark.gpu
@pytest.mark.parametrize("function", [_silu_in_place, _leaky_in_place])
@pytest.mark.parametrize("dtype", FLOATS)
def test_other_shapes_and_dtypes_have_eagers_bits_on_a_gpu(function, dtype, tmp_path):
    from agent.ahead.quick_measure import QuickMeasure

    directory = _directory(function, (tensor(4, 8),), tmp_path)
    others = [variant(function, tensor(*shape, dtype=dtype)) for shape in ((3, 7), (1025, 4099))]
    others.append(variant(function, tensor(37, 1001, dtype=dtype, stride=(1, 37))))
    for result in QuickMeasure(torch.device("cuda:0"))(sample(*others), directory):
        assert (result.status, result.t_min) == ("ok", -10)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", FLOATS)
def test_what_is_spread_is_right_on_a_gpu(dtype, tmp_path):
    from agent.ahead.quick_measure import QuickMeasure

    directory = _directory(_normed, CHANNELS, tmp_path)
    shapes = [(8, 65, 33, 31), *[(65,)] * 4]
    other = sample(variant(_normed, *(tensor(*shape, dtype=dtype) for shape in shapes)))
    (result,) = QuickMeasure(torch.device("cuda:0"))(other, directory)
    assert result.status == "ok" and result.t_min <= -5

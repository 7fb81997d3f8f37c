"""Sums, means and norms in eager's order: the order itself, and kernels' bits against sums that are taken in it."""

import itertools
import math
import os
import re

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from agent.ahead.quick_measure import QuickMeasure
from agent.distill.eager.emulated_sums import added, fused, moments, rows_of, squares, welford
from agent.distill.eager.op_effects import Addition, find_effects
from agent.distill.eager.sum_order import Ragged, SumOrder, order_of, sum_order
from agent.distill.kernels.launch_configs import LaunchLimits
from agent.distill.lowered_regions import Sketches
from agent.distill.rewrites.sample_graphs import float_dtypes
from agent.distill.rounding import Rounding, hides_bits
from agent.distill.search.found_families import SearchChoice
from agent.distill.search.neighbours import alternatives, steps
from agent.distill.source.style import Style
from agent.distill.static import Distill
from passbench.policy.check import check_dir
from tests.agent.support import ANY, in_dtype, sample, tensor, variant

SKETCHES = Sketches()
"""What has been lowered is known to all tests of this file."""

BFLOAT16, FLOAT32 = torch.bfloat16, torch.float32
KNOWN = [
    ((4096, 768), (1,), FLOAT32, SumOrder(768, 32, 1, 4, True)),
    ((4096, 768), (1,), BFLOAT16, SumOrder(768, 32, 1, 8, True)),
    ((1, 4096), (1,), BFLOAT16, SumOrder(4096, 512, 1, 8, True)),
    ((64, 100), (1,), FLOAT32, SumOrder(100, 32, 1, 4, False)),
    ((2, 256, 56, 56), (0, 2, 3), FLOAT32, SumOrder(6272, 32, 1, 4, False)),
    ((2, 196, 384), (0, 1), FLOAT32, SumOrder(392, 1, 4, 4, False)),
    ((4096, 64), (0,), FLOAT32, None),  # several blocks share a column
]
"""Orders that benchmarks/agent/h200_distill/orders.txt found to be eager's on an H200."""


RAGGED = [
    ((64, 180), (1,), BFLOAT16, SumOrder(180, 16, 1, 8, True, deal=Ragged(180, 8, 128))),
    ((2, 256, 14, 14), (2, 3), BFLOAT16, SumOrder(196, 16, 1, 8, True, deal=Ragged(196, 8, 128))),
    ((3, 1111), (1,), FLOAT32, SumOrder(1111, 256, 1, 4, True, deal=Ragged(1111, 4, 1024))),
]
"""Orders of rows that begin between two vectors, as `Reduce.cuh` has them."""


def _stride(shape):
    return torch.empty(shape, device="meta").stride()


@pytest.mark.parametrize(("shape", "dims", "dtype", "order"), KNOWN + RAGGED)
def test_the_order_follows_from_shape_and_dtype(shape, dims, dtype, order):
    assert sum_order(shape, _stride(shape), dims, dtype) == order


def test_what_begins_between_two_vectors_has_no_known_order():
    """Kernels read from a boundary on, and deal the elements otherwise. A warp's softmax reads one by one."""

    def known(begin):
        def function(x):
            rows = x[begin : begin + 512].view(4, 128)
            return rows.sum(-1), F.layer_norm(rows, (128,)), torch.softmax(rows, -1)

        one = variant(function, tensor(520))
        return [order_of(a) is not None for found in find_effects(one.graph, one.inputs).additions for a in found]

    assert known(1) == known(6) == [False, False, True]
    assert known(4) == [True, True, True]


def test_expanded_tensors_double_precision_and_single_elements_have_no_known_order():
    assert sum_order((64, 128), (1, 0), (1,), FLOAT32) is None
    assert sum_order((64, 128), (128, 1), (1,), torch.float64) is None
    assert sum_order((64, 1), (1, 1), (1,), FLOAT32) is None


@given(
    shape=st.lists(st.integers(1, 300), min_size=1, max_size=4).filter(lambda s: math.prod(s) < 10**7),
    data=st.data(),
    dtype=st.sampled_from((FLOAT32, BFLOAT16)),
)
def test_every_order_takes_each_element_once(shape, data, dtype):
    dims = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    order = sum_order(shape, _stride(shape), dims, dtype)
    length = math.prod(shape[d] for d in dims)
    if order is None:
        return
    assert order.length == length
    assert order.step == 2 ** (order.step.bit_length() - 1)
    assert order.width * order.height <= 512
    ones = torch.ones(1, length)
    assert added(ones, order).item() == length


def _pass(function, inputs, directory, rounding=Rounding.EXACT):
    """The variant, and its pass's source, in which everything is rounded as `rounding` says."""
    one = variant(function, *inputs)
    made = sample(one)
    levels = dict.fromkeys(float_dtypes(made.variants).values(), rounding)
    task = Distill(sketches=SKETCHES).task(made, ANY, levels, lambda order: True)
    submission = task.write(task.gains(), Distill().style, directory)
    assert submission.compiler == "pass", submission.reason
    assert check_dir(directory) == []
    return one, "".join(file.read_text() for file in directory.glob("fuse_*.py"))


def _wide(*shape, dtype=FLOAT32):
    """Numbers whose sums depend on the order."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(shape, generator=generator)
    return (x * torch.exp2(6 * torch.randn(shape, generator=generator).clamp(-2, 2))).to(dtype)


SUMS = [
    ((6, 256), (1,)),
    ((3, 1112), (1,)),
    ((1, 4096), (1,)),
    ((5, 30), (1,)),
    ((2, 12, 7, 7), (0, 2, 3)),
    ((4, 40, 24), (0, 1)),
    ((2, 16, 128), (0, 1)),
    ((2, 4, 16, 1, 4, 2), (2, 4)),
    ((9, 179), (1,)),
    ((5, 2051), (1,)),
    ((2, 20, 14, 14), (2, 3)),
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("shape", "dims"), SUMS)
def test_a_kernel_adds_in_that_order_bit_for_bit(shape, dims, dtype, tmp_path, interpreter):
    def function(x):
        return torch.ops.aten.sum.dim_IntList(x * 2.0, list(dims))

    x = _wide(*shape, dtype=getattr(torch, dtype))
    order = sum_order(shape, x.stride(), dims, x.dtype)
    _, source = _pass(function, (tensor(*shape, dtype=dtype),), tmp_path / "pass")
    assert "ordered_sum" in source
    (found,) = interpreter.results(tmp_path / "pass", variant(function, tensor(*shape, dtype=dtype)), [x])
    expected = added(rows_of(x * 2.0, dims).float(), order).to(x.dtype).view(found.shape)
    assert torch.equal(found, expected)


def test_squares_of_a_half_type_are_rounded_before_they_are_added(tmp_path, interpreter):
    """As eager rounds what it stores (fusible-8cc452f53b67)."""

    def function(x):
        return ((x * 3.0) ** 2).sum(-1)

    x = _wide(6, 32, dtype=BFLOAT16)
    one, source = _pass(function, (tensor(6, 32, dtype="bfloat16"),), tmp_path / "pass")
    assert "ordered_sum" in source
    (found,) = interpreter.results(tmp_path / "pass", one, [x])
    order = sum_order(x.shape, x.stride(), (1,), BFLOAT16)
    assert torch.equal(found, added(((x * 3.0) ** 2).float(), order).to(BFLOAT16))


@pytest.mark.parametrize("shape", [(2, 20, 14, 14), (1, 9, 13, 19)])
def test_rows_that_begin_between_two_vectors_are_also_written(shape, tmp_path, interpreter):
    def function(x):
        y = x + 0.5
        return y, y.mean((2, 3), keepdim=True) * y

    x = _wide(*shape, dtype=BFLOAT16)
    one, source = _pass(function, (tensor(*shape, dtype="bfloat16"),), tmp_path / "pass")
    assert "ordered_sum" in source
    y = x + 0.5
    mean = added(rows_of(y, (2, 3)).float(), sum_order(shape, x.stride(), (2, 3), BFLOAT16))
    share = torch.tensor(1.0) / (shape[2] * shape[3])
    shifted, scaled = interpreter.results(tmp_path / "pass", one, [x])
    assert torch.equal(shifted, y)
    assert torch.equal(scaled, (mean * share).to(BFLOAT16).view(*shape[:2], 1, 1) * y)


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize(
    ("shape", "dims"), [((6, 256), (1,)), ((9, 30), (1,)), ((5, 131), (1,)), ((2, 16, 9, 9), (1,))]
)
def test_norms_of_vectors_add_squares_in_that_order(shape, dims, dtype, tmp_path, interpreter):
    def function(x):
        return F.normalize(x * 0.5, 2.0, dims[0])

    x = _wide(*shape, dtype=dtype)
    one, source = _pass(function, in_dtype((tensor(*shape),), str(dtype).removeprefix("torch.")), tmp_path / "pass")
    assert "ordered_squares" in source
    (found,) = interpreter.results(tmp_path / "pass", one, [x])
    order = order_of(Addition("norm", dtype, shape, x.stride(), dims))
    kept = [1 if d in dims else n for d, n in enumerate(shape)]

    def expected(fma):
        total = added(rows_of(x.float() * 0.5, dims), order, None, fma)
        norm = total.double().sqrt().float().to(dtype)  # a CPU's own is not always rounded to nearest
        return (x.float() * 0.5 / norm.view(kept).clamp_min(1e-12).float()).to(dtype)

    assert any(torch.equal(found, expected(fma)) for fma in (fused, _rounded_twice))  # Triton 3.6 rounds twice


def test_sums_of_several_orders_share_a_kernel(tmp_path, interpreter):
    """A mean in bfloat16, of which a step has 256 elements, and one in float32, with 128."""

    def function(x):
        return x * x.mean(-1, keepdim=True), x.float().pow(2).mean(-1)

    x = _wide(4, 2304, dtype=BFLOAT16)
    one, source = _pass(function, (tensor(4, 2304, dtype="bfloat16"),), tmp_path / "pass")
    assert source.count("@triton.jit\ndef mean") == 1
    scaled, mean_square = interpreter.results(tmp_path / "pass", one, [x])
    orders = [sum_order(x.shape, x.stride(), (1,), dtype) for dtype in (BFLOAT16, FLOAT32)]
    assert orders[0].step == 2 * orders[1].step
    share = torch.tensor(1.0) / 2304
    assert torch.equal(scaled, x * (added(x.float(), orders[0]) * share).to(BFLOAT16)[:, None])
    assert torch.equal(mean_square, added(x.float().pow(2), orders[1]) * share)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_short_rows_of_a_softmax_and_of_a_norm_share_a_kernel(dtype, tmp_path, interpreter):
    """Eight elements are a step of both: of a norm's 32 lanes two have something (fusible-68b796c9c203)."""

    def function(x, y, w, b):
        z = x * torch.softmax(y, -1) + y
        return z, F.layer_norm(z, (8,), w, b)

    inputs = in_dtype((tensor(2, 4, 8), tensor(2, 4, 8), tensor(8), tensor(8)), dtype)
    one, source = _pass(function, inputs, tmp_path / "pass")
    assert source.count("_kernel(in_0") == 1 and "ordered_sum" in source and "welford_step" in source
    assert "COLUMNS=8," in source and " = halves(" not in source
    assert interpreter.problems(tmp_path / "pass", one) == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_short_rows_have_eagers_bits_on_a_gpu(dtype, tmp_path):
    def function(x, y, w, b):
        z = x * torch.softmax(y, -1) + y
        return z, F.layer_norm(z, (8,), w, b)

    inputs = in_dtype((tensor(64, 4, 8), tensor(64, 4, 8), tensor(8), tensor(8)), dtype)
    one, _ = _pass(function, inputs, tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


@pytest.mark.parametrize("columns", [4, 16, 36, 96, 128, 180, 192, 384, 640, 768, 1024, 1280, 1536])
def test_norms_have_the_moments_of_cudas_kernels(columns, tmp_path, interpreter):
    def layer_norm(x):
        return F.layer_norm(x, (columns,)) * 2.0

    def rms_norm(x):
        return torch.rms_norm(x, (columns,), None, 1e-6) * 2.0

    x = _wide(3, columns) + 1
    length = torch.tensor(float(columns))

    def expected(fma):
        mean, distances = moments(x, fma)
        return {
            layer_norm: (x - mean[:, None]) * torch.rsqrt(distances / length + 1e-5)[:, None] * 2,
            rms_norm: x * torch.rsqrt(squares(x, fma) / length + 1e-6)[:, None] * 2,
        }

    for number, function in enumerate((layer_norm, rms_norm)):
        one, _ = _pass(function, (tensor(3, columns),), tmp_path / str(number))
        (found,) = interpreter.results(tmp_path / str(number), one, [x])
        wanted = [expected(fma)[function] for fma in (fused, _rounded_twice)]  # Triton 3.6 rounds twice
        assert any(torch.equal(found, want) for want in wanted)


@pytest.mark.parametrize(
    ("places", "dtype", "size"),
    [
        *((places, dtype, 1.0) for places in (5, 75, 300) for dtype in ("float32", "float16")),
        (75, "float16", 1e-4),
        (75, "bfloat16", 1e-4),
    ],
)
def test_group_norms_have_the_moments_of_cudas_kernels(places, dtype, size, tmp_path, interpreter):
    """Groups of 20, 300 and 1,200 elements: in one warp, some of whose threads have none, and in sixteen. Beside the
    variance of small numbers the epsilon counts, which eager's kernel takes in the dtype of its input."""

    def function(x, w, b):
        return (F.relu(F.group_norm(x, 2, w, b, 1e-5)),)

    given = [(_wide(3, 8, places) + 1) * size, _wide(8), _wide(8)]
    given = [x.to(getattr(torch, dtype)) for x in given]
    x, w, b = given
    rows = x.float().view(6, 4 * places)
    epsilon = torch.tensor(1e-5, dtype=x.dtype).float()
    order = order_of(Addition("group_norm", x.dtype, tuple(rows.shape), rows.stride(), (1,)))

    def expected(fma):
        mean, distances = welford(rows, order, fma)
        inverse = torch.rsqrt(distances / torch.tensor(float(rows.shape[1])) + epsilon)
        mean, inverse = (each.to(x.dtype).float().view(3, 2, 1, 1) for each in (mean, inverse))
        scale = (inverse * w.float().view(1, 2, 4, 1)).expand(3, 2, 4, places)
        shift = b.float().view(1, 2, 4, 1) - scale * mean
        return fma(scale, x.float().view(scale.shape), shift).to(x.dtype).view(x.shape).relu()

    one, _ = _pass(function, tuple(tensor(*v.shape, dtype=dtype) for v in given), tmp_path / "pass")
    (found,) = interpreter.results(tmp_path / "pass", one, given)
    assert any(torch.equal(found, expected(fma)) for fma in (fused, _rounded_twice))  # Triton 3.6 rounds twice


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_group_norms_of_small_numbers_are_right_on_a_gpu(dtype, tmp_path):
    """Beside their variance epsilon counts. With contracted shifts an H100 had -6 in float32 and -5 in float16."""

    def function(x, w, b):
        return (F.relu(F.group_norm(x * 0.003, 8, w, b, 1e-5)),)

    one, _ = _pass(function, in_dtype((tensor(2, 32, 300), tensor(32), tensor(32)), dtype), tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


def test_group_norms_are_left_to_eager_where_no_gpu_has_confirmed_them(tmp_path):
    made = sample(variant(lambda x, w: F.relu(F.group_norm(x, 2, w)), tensor(2, 8, 20), tensor(8)))
    levels = dict.fromkeys(float_dtypes(made.variants).values(), Rounding.EXACT)
    assumed, confirmed = (Distill().task(made, ANY, levels, *given) for given in ((), (lambda order: True,)))
    assert not any("group_norm" in pattern for pattern in assumed.gains())
    assert any("group_norm" in pattern for pattern in confirmed.gains())


@pytest.mark.parametrize(
    ("function", "dtype", "hides"),
    [
        (lambda x: (x * torch.rsqrt((x * x).mean(-1, True))).float(), "float16", True),
        (lambda x: (x * torch.rsqrt((x * x).mean(-1, True))).float(), "float32", False),
        (lambda x: torch.softmax(x * 2.0, -1), "float16", False),
        (lambda x: torch.softmax(x * 2.0, -1) + x, "bfloat16", True),
        (lambda x: (x * 2.0 + 1.0) * x, "bfloat16", False),
    ],
    ids=["mean", "in float32", "rounded last", "added to", "no sum"],
)
def test_a_half_type_hides_bits_where_it_is_computed_on(function, dtype, hides):
    one = variant(lambda x: (function(x),), tensor(4, 600, dtype=dtype))
    assert hides_bits(SKETCHES.of(one.graph, one.inputs)) is hides


def _normed(x, w, b):
    y = x * 2.0
    return y + F.layer_norm(y, w.shape, w, b), y * torch.rms_norm(y, w.shape, None, 1e-6)


def _in_lanes(one, directory):
    """Writes the pass in eager's order whose norms the lanes of warps add up; returns its source."""
    levels = dict.fromkeys(float_dtypes([one]).values(), Rounding.EXACT)
    task = Distill(sketches=SKETCHES).task(sample(one), ANY, levels, lambda order: True)
    style = Style(LaunchLimits(lanes=True))
    assert task.write(task.gains(), style, directory).compiler == "pass"
    assert check_dir(directory) == []
    return "".join(file.read_text() for file in directory.glob("fuse_*.py"))


@pytest.mark.parametrize(
    ("columns", "warps", "moments"), [(128, 1, 10), (256, 2, 12), (768, 4, 16), (1280, 4, 21), (1536, 4, 21)]
)
def test_lanes_add_up_norms_in_eagers_order_when_compiled(columns, warps, moments, tmp_path, torch_forks):
    """Each lane has one of eager's threads; the first lane gets the other half's, half by half. Of a short row there
    are fewer warps, since the others of eager's four have nothing to add. How many elements a mean is of is exchanged
    only where that is no power of two, or between warps that have more and fewer."""
    one = variant(_normed, *in_dtype((tensor(6, columns), tensor(columns), tensor(columns)), "bfloat16"))
    source = _in_lanes(one, tmp_path / "pass")
    assert f"ROWS=1, COLUMNS={128 * warps}, num_warps={warps}" in source
    compiled = _compiled(torch_forks, source, 128 * warps, warps, tmp_path)
    offsets = [int(n) for n in re.findall(r"shfl\.sync\.bfly\.b32\s+%\w+, %\w+, (\d+), 31", compiled)]
    halves = [16, 8, 4, 2, 1, *_BETWEEN_WARPS[warps]]
    assert _runs(offsets) == _runs([*halves, *halves]), "moments, and squares"
    assert len(offsets) == moments + len(halves), "means, distances and counts, and one sum"
    loads = 3 * 4 * math.ceil(columns / (128 * warps))
    assert compiled.count("ld.global") == loads, "a thread loads its four elements of each input and step once"
    assert warps > 1 or "bar.sync" not in compiled


def _beside_channels(x, y, w, b):
    return F.layer_norm(torch.cat([x, y.flatten(2).transpose(1, 2)], 1), w.shape, w, b)


def test_what_lies_across_and_along_a_row_is_exchanged_by_no_threads(tmp_path, torch_forks, interpreter):
    """Two barriers are those between warps. With columns of two dimensions there were 14, two for each load and step
    (41 in typical-01217d949530)."""
    inputs = tensor(2, 1, 768), tensor(2, 768, 4, 4), tensor(768), tensor(768)
    one = variant(_beside_channels, *in_dtype(inputs, "bfloat16"))
    source = _in_lanes(one, tmp_path / "lanes")
    assert "tl.arange(0, COLUMNS)\n" in source
    assert _compiled(torch_forks, source, 512, 4, tmp_path, aligned=True).count("bar.sync") == 2
    other, source = _pass(_beside_channels, inputs, tmp_path / "pass")
    assert "tl.arange(0, COLUMNS)\n" in source
    assert interpreter.problems(tmp_path / "pass", other) == []


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rows_of_which_some_lie_across_have_eagers_bits_on_a_gpu(dtype, tmp_path):
    inputs = tensor(2, 1, 768), tensor(2, 768, 14, 14), tensor(768), tensor(768)
    one = variant(_beside_channels, *in_dtype(inputs, dtype))
    _in_lanes(one, tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


def _normed_groups(x, w, b):
    return F.relu(F.group_norm(x, 8, w, b, 1e-5))


def test_lanes_of_sixteen_warps_add_up_a_group_norm_when_compiled(tmp_path, torch_forks):
    """One of eager's threads in each, and two barriers, where two warps had 73. A single warp keeps its own way: its
    lanes would have other bits than the first one."""
    one = variant(_normed_groups, *in_dtype((tensor(2, 32, 300), tensor(32), tensor(32)), "bfloat16"))
    source = _in_lanes(one, tmp_path / "pass")
    assert "ROWS=1, COLUMNS=512, num_warps=16" in source and "joined_of_two)" in source
    compiled = _compiled(torch_forks, source, 512, 16, tmp_path)
    offsets = [int(n) for n in re.findall(r"shfl\.sync\.bfly\.b32\s+%\w+, %\w+, (\d+), 31", compiled)]
    assert _runs(offsets) == [16, 8, 4, 2, 1, 8, 4, 2, 1] and len(offsets) == 3 * 9
    assert compiled.count("bar.sync") == 2
    short = variant(_normed_groups, tensor(2, 32, 30), tensor(32), tensor(32))
    assert "join_halves(" in _in_lanes(short, tmp_path / "short")


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("places", [30, 300, 4096])
def test_lanes_give_group_norms_eagers_bits_on_a_gpu(places, dtype, tmp_path):
    one = variant(_normed_groups, *in_dtype((tensor(4, 32, places), tensor(32), tensor(32)), dtype))
    _in_lanes(one, tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


def _normed_channels(x, w, b):
    return F.layer_norm(x.flatten(2).transpose(1, 2), w.shape, w, b)


def test_lanes_keep_rows_that_lie_across_and_several_rows_at_once_are_tried(tmp_path):
    """A program of one row reads a number of each sector: it does so once."""
    one = variant(_normed_channels, *in_dtype((tensor(2, 768, 14, 14), tensor(768), tensor(768)), "float32"))
    source = _in_lanes(one, tmp_path / "pass")
    assert source.count("tl.load(in_0 +") == 2 and "for start" not in source
    task = Distill(sketches=SKETCHES).task(
        sample(one), ANY, dict.fromkeys(float_dtypes([one]).values(), Rounding.EXACT)
    )
    start = SearchChoice(tuple(task.gains()), Style(LaunchLimits(lanes=True), captured=True))
    (other,) = (each for each in alternatives(task, start) if not each.style.limits.lanes)
    assert other in list(steps(task, start)) and other.style.captured
    assert not any(each.style.limits.lanes for each in alternatives(task, other))


@pytest.mark.parametrize(("columns", "in_lanes"), [(36, False), (64, True), (128, True), (192, True)])
def test_one_warp_combines_moments_in_lanes_only_where_all_lanes_get_the_same(columns, in_lanes, tmp_path):
    """On an H200 the lanes of one warp had different means of 36 elements, by whose are combined with whose."""
    source = _in_lanes(variant(_normed, tensor(6, columns), tensor(columns), tensor(columns)), tmp_path / "pass")
    assert bool(re.search(r"moments_of_(two|equal)\)", source)) == in_lanes
    assert ("combine_halves(" in source) != in_lanes


def _runs(numbers):
    return [n for n, _ in itertools.groupby(numbers)]


_BETWEEN_WARPS = {1: (), 2: (1,), 4: (2, 1)}
"""How far warps are apart that exchange what they have, behind the lanes of each."""


def _compiled(run, source, columns, warps, directory, aligned=False):
    """The kernel of a pass as PTX for an H100; a process of its own, since Triton here may be the interpreter."""
    script = directory / "compiled.py"
    kernel = re.search(r"def (\w+_kernel)\((.*?), ROWS", source)
    pointers = kernel[2].split(", ")
    helpers = source[source.index("@triton.jit") : source.index("def library_")]
    script.write_text(
        "import triton\nimport triton.language as tl\nfrom triton.backends.compiler import GPUTarget\n"
        "from triton.language.extra import libdevice\n"
        f"from triton.compiler import ASTSource\n\n\n{helpers}\n"
        f"types = dict.fromkeys({pointers}, '*bf16')\n"
        "types |= dict.fromkeys(('ROWS', 'COLUMNS', 'dtype_0'), 'constexpr')\n"
        f"kernel = {kernel[1]}\n"
        "types = {name: types[name] for name in kernel.arg_names}\n"
        f"values = {{name: {{'ROWS': 1, 'COLUMNS': {columns}, 'dtype_0': tl.bfloat16}}[name]"
        " for name in types if types[name] == 'constexpr'}\n"
        f"known = {{(n,): [['tt.divisibility', 16]] for n in range({len(pointers) if aligned else 0})}}\n"
        "source = ASTSource(kernel, types, values, known)\n"
        f"options = {{'num_warps': {warps}, 'enable_fp_fusion': False}}\n"
        "print(triton.compile(source, target=GPUTarget('cuda', 90, 32), options=options).asm['ptx'])\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = run(f"import runpy; runpy.run_path({str(script)!r})", environment)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("columns", [4, 16, 36, 64, 128, 192, 384, 640, 768, 1280, 1536, 4096])
def test_lanes_give_eagers_bits_on_a_gpu(columns, dtype, tmp_path):
    one = variant(_normed, *in_dtype((tensor(300, columns), tensor(columns), tensor(columns)), dtype))
    _in_lanes(one, tmp_path / "pass")
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


def _rounded_twice(a, b, c):
    """a * b + c as Triton 3.6's interpreter computes `tl.fma`."""
    return a * b + c


def _norm_chain(x, w, b):
    """Two norms and a mean in one kernel."""
    y = F.layer_norm(x * 2.0, (200,), w, b)
    return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6), torch.rms_norm(y, (200,), w, 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_rounded_as_eager_does_is_right_by_tolerance(dtype, tmp_path, interpreter):
    inputs = in_dtype((tensor(9, 200), tensor(200), tensor(200)), dtype)
    one, _ = _pass(_norm_chain, inputs, tmp_path / "pass")
    assert interpreter.problems(tmp_path / "pass", one) == []


def _functions(x, y):
    return torch.sigmoid(x) * torch.exp(y), torch.log1p(x.abs()) / 3.7, torch.sin(y) + torch.tanh(x)


def test_functions_are_cudas_and_constant_divisors_are_multiplied_by(tmp_path):
    _, source = _pass(_functions, (tensor(64, 32), tensor(64, 32)), tmp_path / "exact")
    assert "from triton.language.extra import libdevice\n" in source
    assert all(f"libdevice.{name}(" in source for name in ("exp", "log1p", "sin", "tanh"))
    assert "tl.exp(" not in source
    assert f"* {(torch.tensor(1.0) / 3.7).item()}" in source
    _, source = _pass(_functions, (tensor(64, 32), tensor(64, 32)), tmp_path / "any", Rounding.ANY)
    assert "libdevice" not in source


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_erf_is_that_of_cuda_13(dtype, tmp_path, interpreter):
    """Written out, so that Triton's interpreter computes it, too."""
    one, source = _pass(lambda x, y: F.gelu(x * 3.0) + y, in_dtype((tensor(64, 32),) * 2, dtype), tmp_path / "pass")
    assert "erf_of_cuda(" in source and "tl.erf(" not in source
    assert interpreter.problems(tmp_path / "pass", one) == []


def _backward_of_gelu(grad, x):
    return torch.ops.aten.gelu_backward.default(grad, x * 2.0) + 1.0


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize(
    "function", [lambda x, y: F.gelu(x * 3.0) + y, lambda x, y: torch.erf(x + y), _backward_of_gelu]
)
def test_erf_gives_eagers_bits_on_a_gpu(function, dtype, tmp_path):
    one, source = _pass(function, in_dtype((tensor(3000, 320),) * 2, dtype), tmp_path / "pass")
    assert "erf_of_cuda(" in source
    (result,) = QuickMeasure(torch.device("cuda"))(sample(one), tmp_path / "pass")
    assert (result.status, result.t_min) == ("ok", -10), result


def _softmax(x):
    return F.softmax(x * 2.0, -1) + 1.0


@pytest.mark.parametrize("length", [3, 32, 60, 100, 300, 1000])
def test_a_softmax_of_short_rows_adds_as_a_warp_does(length, tmp_path, interpreter):
    x = torch.randn(5, length, generator=torch.Generator().manual_seed(2)) * 3.0
    one, source = _pass(_softmax, (tensor(5, length),), tmp_path / "pass")
    assert "libdevice.exp(" in source and "ordered_sum" in source
    (found,) = interpreter.results(tmp_path / "pass", one, [x])
    scaled = x * 2.0
    powers = torch.exp(scaled - scaled.amax(1, keepdim=True))
    order = order_of(Addition("softmax", FLOAT32, (5, length), (length, 1), (1,)))
    assert order.step >= length > order.step // 2 and order.width == min(order.step, 32)
    assert torch.equal(found, powers / added(powers, order)[:, None] + 1.0)


@pytest.mark.parametrize(("length", "block"), [(500, 512), (1000, 1024)])
def test_the_lanes_of_a_warp_exchange_no_more_than_its_sum_and_maximum(length, block, tmp_path, torch_forks):
    """Each lane has 16 or 32 elements of a row; what they add to each other is the lane's own."""
    _, source = _pass(_softmax, in_dtype((tensor(5, length),), "bfloat16"), tmp_path / "pass")
    assert f"ROWS=1, COLUMNS={block}, num_warps=1" in source
    compiled = _compiled(torch_forks, source, block, 1, tmp_path)
    assert compiled.count("shfl.sync") == 2 * 5
    assert compiled.count("ld.shared") + compiled.count("ldmatrix") <= block // 64


def _sums_of_channels(x, y):
    return torch.ops.aten.sum.dim_IntList(x * y, [0, 2, 3]), x + 1.0


def test_warps_exchange_what_rows_of_threads_have_once(tmp_path, torch_forks):
    """Eager's block has 16 rows of threads for a channel; in each step by halves, warps would wait for each other."""
    _, source = _pass(_sums_of_channels, in_dtype((tensor(8, 64, 32, 32),) * 2, "bfloat16"), tmp_path / "pass")
    assert "ROWS=1, COLUMNS=2048, num_warps=8" in source
    waits = []
    for each in (source, source.replace("= add_rows(", "= add_halves(")):
        waits.append(_compiled(torch_forks, each, 2048, 8, tmp_path).count("bar.sync"))
    assert waits[1] - waits[0] >= 6, waits


def _softmax_backward(dim, dtype):
    return lambda grad, output: torch.ops.aten._softmax_backward_data.default(grad, output, dim, dtype) * 2.0


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16])
@pytest.mark.parametrize("length", [3, 60, 300, 1000])
def test_a_softmax_backward_of_short_rows_adds_rounded_products_as_a_warp_does(length, dtype, tmp_path, interpreter):
    grad, output = _wide(5, length, dtype=dtype), torch.softmax(_wide(5, length), -1).to(dtype)
    inputs = in_dtype((tensor(5, length), tensor(5, length)), str(dtype).removeprefix("torch."))
    one, source = _pass(_softmax_backward(-1, dtype), inputs, tmp_path / "pass")
    assert "ordered_sum" in source
    (found,) = interpreter.results(tmp_path / "pass", one, [grad, output])
    products = (grad * output).float()
    total = added(products, order_of(Addition("softmax_backward", dtype, (5, length), (length, 1), (1,))))[:, None]
    wanted = [(fma(-output.float(), total, products).to(dtype) * 2.0) for fma in (fused, _rounded_twice)]
    assert any(torch.equal(found, want) for want in wanted)


@pytest.mark.parametrize(("shape", "threads"), [((2, 40, 90), 1), ((2, 70, 40), 16), ((1, 130, 3), 128)])
def test_a_softmax_along_another_dimension_adds_by_as_many_threads_as_eager(shape, threads, tmp_path, interpreter):
    one, source = _pass(lambda x: F.softmax(x * 2.0, 1) + 1.0, (tensor(*shape),), tmp_path / "pass")
    order = order_of(Addition("softmax", FLOAT32, shape, tensor(*shape).stride, (1,)))
    assert (order.width, order.height, order.sums) == (threads, 1, 1) and "ordered_sum" in source
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    (found,) = interpreter.results(tmp_path / "pass", one, [x])
    rows = rows_of(x * 2.0, (1,))
    powers = torch.exp(rows - rows.amax(1, keepdim=True))
    expected = (powers / added(powers, order)[:, None]).view(shape[0], shape[2], shape[1]).transpose(1, 2)
    assert torch.equal(found, expected + 1.0)


def test_a_softmax_backward_in_an_unknown_order_is_left_to_eager():
    one = sample(variant(_softmax_backward(-1, FLOAT32), tensor(20, 2048), tensor(20, 2048)))
    task = Distill(sketches=SKETCHES).task(one, ANY, dict.fromkeys(float_dtypes(one.variants).values(), Rounding.EXACT))
    assert not any("softmax" in pattern for pattern in task.gains())


def test_what_adds_in_an_unknown_order_is_left_to_eager(tmp_path):
    one = sample(variant(_softmax, tensor(64, 2048)))
    task = Distill(sketches=SKETCHES).task(one, ANY, dict.fromkeys(float_dtypes(one.variants).values(), Rounding.EXACT))
    assert not any("softmax" in pattern for pattern in task.gains())
    assert "left to eager" in " ".join(task.causes)


def _normalised_backward(g, x, w, mean, variance, none):
    """An op with several results, of which two are sums in an order of its own, and a chain behind it."""
    grads = torch.ops.aten.native_batch_norm_backward.default(
        g, x, w, mean, variance, none, none, False, 1e-5, [True, True, True]
    )
    return torch.relu(grads[0] * 2.0) + 1.0, grads[1], grads[2]


@pytest.mark.parametrize("rounding", [Rounding.EXACT, Rounding.SUMS])
def test_what_follows_is_fused_without_it(rounding):
    image, channels = tensor(2, 8, 14, 14, stride=(1568, 1, 112, 8)), tensor(8)
    one = sample(variant(_normalised_backward, image, image, channels, channels, channels, tensor(0)))
    whole = Distill(sketches=SKETCHES).task(one, ANY)
    task = Distill(sketches=SKETCHES).task(one, ANY, dict.fromkeys(float_dtypes(one.variants).values(), rounding))
    assert "native_batch_norm_backward" in " ".join(whole.gains())
    (pattern,) = task.gains()
    assert "relu" in pattern
    assert "native_batch_norm_backward" not in pattern

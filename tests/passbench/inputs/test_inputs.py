import itertools
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from passbench.inputs.distribution import CORRECTNESS, Distribution
from passbench.inputs.draw import InputError, fill, generator, make_input, make_inputs
from passbench.inputs.segments import of_state
from storage.records import Input, dtype_of
from tests.passbench.samples import spec

DTYPES = """float32 float16 bfloat16 float64 int64 int32 int16 int8 uint8 uint16 bool complex64 complex32
    float8_e4m3fn""".split()

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def draw(one: Input, how: Distribution = Distribution.NORMAL, seed: int = 0) -> torch.Tensor:
    return make_input(one, how, generator(seed, 0, "cpu"))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", CORRECTNESS)
def test_dtype_shape_and_stride_are_the_records(dtype, how):
    x = draw(Input("x", "input", dtype, (3, 4), (1, 3)), how)
    assert (x.dtype, x.shape, x.stride()) == (dtype_of(dtype), (3, 4), (1, 3))
    assert torch.isfinite(x.to(torch.complex128)).all()


@pytest.mark.parametrize("stride", [(0, 1), (1, 1), (8, 2)])
def test_expanded_overlapping_and_gapped_strides(stride):
    x = draw(Input("x", "input", "float32", (3, 4), stride))
    assert x.stride() == stride
    if stride == (0, 1):
        assert torch.equal(x[0], x[2])


@given(st.integers(0, 2**31), st.integers(0, 1000))
def test_the_same_seed_and_index_give_the_same_values(seed, index):
    specs = (spec("x", 3), spec("n", 2, dtype="int64", low=0, high=9))
    first, again = (make_inputs(specs, seed, index, "cpu") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(make_inputs(specs, seed, index + 1, "cpu")[0], first[0])


@pytest.mark.parametrize("how", CORRECTNESS)
def test_values_stay_in_the_declared_range(how):
    x = draw(spec("x", 1000, low=0.25, high=0.75), how)
    assert x.min() >= 0.25 and x.max() <= 0.75
    n = draw(spec("n", 1000, dtype="int64", low=3, high=5), how)
    assert set(n.tolist()) == {3, 4, 5}  # both ends belong to the range
    assert set(draw(spec("b", 100, dtype="bool"), how).tolist()) == {True, False}
    assert set(draw(spec("i", 100, dtype="int32"), how).tolist()) == {0, 1}


FLOATS = ["float32", "float16", "bfloat16", "float64"]


@given(
    st.floats(allow_nan=False),
    st.floats(allow_nan=False),
    st.sampled_from([*FLOATS, "int64", "int8", "uint8", "bool"]),
    st.sampled_from(CORRECTNESS),
)
@example(-3.4028234663852886e38, 0.0, "bfloat16", Distribution.NORMAL)
@example(-1e300, 1e300, "float32", Distribution.OFFSET)
@settings(max_examples=150)
def test_every_range_gives_values_that_the_dtype_holds(one, other, dtype, how):
    low, high = sorted((one, other))
    x = draw(spec("x", 50, dtype=dtype, low=low, high=high), how)
    assert torch.isfinite(x).all()
    if dtype in FLOATS:
        most = torch.finfo(x.dtype).max
        ends = torch.tensor([min(max(e, -most), most) for e in (low, high)], dtype=torch.float64).to(x.dtype)
        assert (x >= ends[0]).all() and (x <= ends[1]).all()


@pytest.mark.parametrize("how", CORRECTNESS)
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "complex32"])
def test_a_range_wider_than_a_small_dtype_gives_what_the_dtype_holds(dtype, how):
    """These are drawn in a wider dtype, in which the range would be held."""
    x = draw(spec("x", 1000, dtype=dtype, low=-1e6, high=1e6), how).to(torch.complex128)
    assert torch.isfinite(x).all() and x.real.max() > 8


@pytest.mark.parametrize("dtype", ["float32", "float8_e4m3fn", "complex64", "complex32"])
@pytest.mark.parametrize("how", CORRECTNESS)
def test_a_buffer_of_which_nothing_is_known_may_be_a_variance(dtype, how):
    parts = torch.view_as_real(draw(spec("v", 100, dtype=dtype, role="buffer"), how).to(torch.complex128))
    assert parts[:, 0].min() >= 0.49 and parts.max() <= 1.5


@pytest.mark.parametrize(("low", "high"), [(1.0, 0.0), (math.nan, 1.0), (0.0, math.nan)])
def test_a_range_that_is_none_is_an_error(low, high):
    for dtype in ("float32", "int64"):
        with pytest.raises(InputError, match="input x: no values"):
            draw(spec("x", 3, dtype=dtype, low=low, high=high))


def test_distributions():
    normal, scaled, offset, sparse, _ = (draw(spec("x", 4000, mean=1.0, std=0.5), how) for how in CORRECTNESS)
    assert normal.mean() == pytest.approx(1.0, abs=0.05) and normal.std() == pytest.approx(0.5, abs=0.05)
    assert scaled.std() == pytest.approx(2.0, abs=0.2)
    assert offset.mean() == pytest.approx(2.0, abs=0.05)
    assert (sparse == 0).float().mean() == pytest.approx(0.9, abs=0.05)


def test_roles_have_defaults_and_weights_do_not_vary():
    weight = spec("w", 4000, role="parameter")
    assert draw(weight, Distribution.SCALED).std() == pytest.approx(0.05, abs=0.01)
    assert draw(spec("v", 100, role="buffer")).min() >= 0.5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_varied_draws_have_other_moments_each_time_and_spikes(dtype, device):
    x = spec("x", 4000, dtype=dtype)
    gens = [generator(seed, 0, device) for seed in range(30)]
    draws = [make_input(x, Distribution.VARIED, gen).double().cpu() for gen in gens]
    assert max(x.std() for x in draws) > 3 * min(x.std() for x in draws)
    assert max(x.mean() for x in draws) > 0.5 and min(x.mean() for x in draws) < -0.5
    assert all(((x - x.mean()).abs() > 6 * x.median().sub(x).abs().median()).any() for x in draws)  # far beyond normal
    assert all(x.abs().max() <= 32 * (1 + 2**-7) for x in draws)  # to within what bfloat16 rounds


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", CORRECTNESS)
def test_a_draw_of_a_seed_is_always_the_same(device, how):
    """Also where a draw has thousands of spikes, and so many that a GPU finds their places."""
    many = [spec("m", 5 << 20)] if device == "cuda" else []
    specs = (spec("x", 1 << 20), spec("w", 1 << 20, role="parameter"), spec("r", 1 << 20, low=-1.0, high=2.0), *many)
    one, other = (make_inputs(specs, 3, 4, device, how) for _ in range(2))
    assert all(map(torch.equal, one, other))


def test_nobody_can_try_what_a_cpu_draws_beside_a_gpus_values():
    """A generator of the CPU's has 32 bits of a seed: whoever finds them knows half of the GPU's."""
    states = ((5, 0), (5, 0), (5 + (1 << 32), 0), (5, 4), (5 + (1 << 62), 4))
    first, again, *others = (torch.rand(2000, generator=of_state(*state)) for state in states)
    assert torch.equal(first, again)
    assert all((one != other).any() for one, other in itertools.combinations([first, *others], 2))
    assert 0.45 < first.mean() < 0.55 and first.std() > 0.25
    words = of_state(5, 0).get_state()[24 : 24 + 8 * 624].view(torch.int64)
    narrow = torch.Generator().manual_seed(int(words[0])).get_state()[24 : 24 + 8 * 624].view(torch.int64)
    assert (words != narrow).sum() > 600  # the state follows from no seed of 32 bits


def test_each_call_of_a_batch_has_moments_of_its_own():
    values = torch.empty(20 * 1000)
    fill(values, [spec("x", 1000)], Distribution.VARIED, generator(0, 0, "cpu"), [torch.full((20,), 1000)])
    means = values.view(20, 1000).median(dim=1).values
    assert means.std() > 0.3


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn"])
def test_inputs_that_are_drawn_together_keep_their_own_moments(dtype):
    specs = [spec("x", 4000, dtype=dtype), spec("w", 4000, dtype=dtype, role="parameter", mean=8.0, std=0.5)]

    def drawn(how):
        values = torch.empty(8000, dtype=dtype_of(dtype))
        fill(values, specs, how, generator(0, 0, "cpu"), [torch.full((4,), 1000), torch.tensor([1500, 2500])])
        return values.float().view(2, 4000)

    x, w = drawn(Distribution.NORMAL)
    assert (x.mean(), x.std()) == (pytest.approx(0, abs=0.1), pytest.approx(1, abs=0.1))
    assert (w.mean(), w.std()) == (pytest.approx(8, abs=0.1), pytest.approx(0.5, abs=0.1))
    assert drawn(Distribution.SCALED).std(dim=1).tolist() == [pytest.approx(4, abs=0.2), pytest.approx(0.5, abs=0.1)]
    assert drawn(Distribution.OFFSET).mean(dim=1).tolist() == [pytest.approx(2, abs=0.1), pytest.approx(8, abs=0.1)]
    zeros = (drawn(Distribution.SPARSE) == 0).float().mean(dim=1)
    assert zeros.tolist() == [pytest.approx(0.9, abs=0.03), 0]
    x, w = drawn(Distribution.VARIED)
    assert x.view(4, 1000).median(dim=1).values.std() > 0.3
    assert w.min() > 6 and w.max() >= 10  # away from 0
    assert x.abs().max() > 4


@pytest.mark.parametrize("how", CORRECTNESS)
def test_inputs_that_are_drawn_together_keep_their_own_ranges(how):
    most = float(torch.finfo(torch.float16).max)
    ends = [(0.0, 2.0), (-0.4, 1.6), (100.0, 101.0), (-most, most), (3.0, 3.0)]
    specs = [spec("x", 2000, dtype="float16", low=low, high=high) for low, high in ends]
    values = torch.empty(10000, dtype=torch.float16)
    fill(values, specs, how, generator(0, 0, "cpu"), [torch.full((4,), 500)] * len(specs))
    for (low, high), part in zip(torch.tensor(ends).half().tolist(), values.float().view(5, 2000), strict=True):
        assert low <= part.min() and part.max() <= high
        assert part.max() - part.min() >= (high - low) / 9


CONSTANTS = [
    {"mean": 0.0, "std": 0.0},
    {"mean": 0.0, "std": 1e-6},
    {"mean": 1.0, "std": 0.0},
    {"low": 0.0, "high": 0.0},
    {"low": 1.0, "high": 1.0},
]


@pytest.mark.parametrize("role", ["parameter", "buffer"])
@pytest.mark.parametrize("moments", CONSTANTS)
def test_a_tensor_that_nobody_has_trained_is_no_constant(role, moments):
    one, other = (draw(spec("w", 200, role=role, **moments), seed=seed) for seed in (0, 1))
    middle = moments.get("mean", moments.get("low"))
    assert one.std() > 0.02 and (one - other).abs().max() > 0.05
    assert one.mean() == pytest.approx(middle, abs=0.1)


@pytest.mark.parametrize("moments", [{"low": 1e-6, "high": 1e-6}, {"mean": -1e-9, "std": 1e-6}])
def test_a_tensor_next_to_nothing_cannot_be_left_out(moments):
    drawn = draw(spec("w", 200, role="parameter", **moments))
    assert drawn.abs().mean() > 0.02
    assert drawn.min() > 0 or "mean" in moments  # what may have to be positive is


@pytest.mark.parametrize("how", CORRECTNESS)
def test_a_variance_of_ones_stays_positive(how):
    for seed in range(20):
        assert draw(spec("v", 1000, role="buffer", mean=1.0, std=0.0), how, seed).min() > 0


def test_a_range_of_one_value_is_the_limit_of_an_input():
    assert draw(spec("mask", 100, low=1.0, high=1.0), Distribution.VARIED).eq(1).all()


def test_a_varied_draw_reaches_the_ends_of_its_range_and_keeps_to_a_part_of_it():
    draws = [draw(spec("x", 2000, low=-2.0, high=6.0), Distribution.VARIED, seed) for seed in range(20)]
    assert all(x.min() == -2 and x.max() == 6 for x in draws)
    assert min(x.std() for x in draws) < 1.0 < max(x.std() for x in draws)


def test_a_python_integer_is_the_size_that_it_is():
    assert make_inputs((Input("n", "input", "int", (), (), low=7.0, high=7.0),), 0, 0, "cpu") == [7]


def test_without_elements_and_without_dimensions():
    assert draw(spec("x", 0, 3)).shape == (0, 3)
    assert draw(spec("x")).shape == ()

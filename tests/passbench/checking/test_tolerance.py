import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from passbench.checking.tolerance import LEVELS, Comparison, close, surely_close, t_min, tolerance

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128]
VALUES = st.lists(
    st.one_of(st.floats(-1e4, 1e4, width=32), st.sampled_from([math.nan, math.inf, -math.inf, 0.0])),
    min_size=1,
    max_size=8,
)


def reference(a: torch.Tensor, b: torch.Tensor) -> int | None:
    """The ladder without bisection, by torch's own comparison."""
    for t in LEVELS:
        allowed = tolerance(t, a.dtype)
        if torch.allclose(a.double(), b.double(), rtol=allowed.rtol, atol=allowed.atol, equal_nan=True):
            return t
    return None


@pytest.mark.parametrize(
    ("dtype", "atol", "rtol"),
    [
        (torch.float16, 1e-5, 1e-3),
        (torch.bfloat16, 1e-5, 1.6e-2),
        (torch.float32, 1e-5, 1.3e-6),
        (torch.float64, 1e-7, 1e-7),
    ],
)
def test_level_minus_five_is_the_designs(dtype, atol, rtol):
    assert tolerance(-5, dtype) == pytest.approx((atol, rtol), rel=1e-2)
    assert tolerance(-5, torch.int64) is None


@given(VALUES, st.lists(st.floats(-2, 2), min_size=8, max_size=8), st.sampled_from(FLOATS[:4]))
@settings(max_examples=200)
def test_bisection_finds_what_a_search_of_every_level_finds(values, noise, dtype):
    b = torch.tensor(values, dtype=torch.float64)
    a = b + torch.tensor(noise[: len(values)], dtype=torch.float64)
    a, b = a.to(dtype), b.to(dtype)
    assert t_min([a], [b]) == reference(a, b)


@given(VALUES, st.floats(-1, 1), st.sampled_from(FLOATS))
def test_agreement_is_monotone_in_the_level(values, noise, dtype):
    b = torch.tensor(values).to(dtype)
    passed = [close(b + noise, b, t) for t in LEVELS]
    assert passed == sorted(passed)


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=8),
    st.lists(st.floats(0, 1.5), min_size=8, max_size=8),
    st.sampled_from(LEVELS),
    st.sampled_from(FLOATS),
)
@settings(max_examples=200)
def test_what_single_precision_is_sure_of_holds_in_double(values, shares, t, dtype):
    b = torch.tensor(values, dtype=torch.float64).to(dtype)
    allowed = tolerance(t, dtype)
    share = torch.tensor(shares[: len(values)], dtype=torch.float64)
    a = (b + share * (allowed.atol + allowed.rtol * b.abs())).to(dtype)
    assert close(a, b, t) or not surely_close(a, b, t)


@pytest.mark.parametrize("dtype", FLOATS[:3])
def test_single_precision_is_sure_of_all_but_the_edge(dtype):
    b = torch.linspace(-3, 3, 1000).to(dtype)
    allowed = tolerance(-2, dtype)
    limit = allowed.atol + allowed.rtol * b.double().abs()
    assert surely_close((b + 0.9 * limit).to(dtype), b, -2)
    assert not surely_close((b + 1.1 * limit).to(dtype), b, -2)
    for other in (math.nan, math.inf):
        assert not surely_close(torch.full_like(b, other), b, 1)
    assert not surely_close(torch.ones(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64), 1)


def test_equal_outputs_pass_at_the_lowest_level():
    x = torch.tensor([math.nan, math.inf, -0.0, 1.5])
    comparison = Comparison()
    comparison.add(x, x.clone(), 0, 0)
    assert (comparison.t_min, comparison.max_abs_error, comparison.worst) == (-10, 0.0, None)


def test_each_output_that_differs_has_a_level_of_its_own():
    comparison, ones = Comparison(), torch.ones(3)
    for output, delta in ((0, 1e-3), (1, 0.0), (2, 1e-6), (2, 1e-5), (0, 1e-6)):
        comparison.add(ones + delta, ones, 0, output)
    assert comparison.levels == {0: t_min([ones + 1e-3], [ones]), 2: t_min([ones + 1e-5], [ones])}
    assert comparison.level_of(1) == -10 and comparison.t_min == comparison.levels[0]
    comparison.add(torch.full_like(ones, math.nan), ones, 0, 2)
    assert (comparison.level_of(2), comparison.t_min, comparison.level_of(0)) == (None, None, comparison.levels[0])


@pytest.mark.parametrize(("actual", "new_nan"), [(math.nan, True), (math.inf, False)])
def test_what_is_not_finite_must_be_where_eager_has_it(actual, new_nan):
    comparison = Comparison()
    comparison.add(torch.tensor([1.0, actual]), torch.tensor([1.0, 2.0]), 0, 0)
    assert comparison.t_min is None
    assert comparison.new_nan is new_nan
    assert comparison.worst.index == (1,)
    assert t_min([torch.tensor([3.0])], [torch.tensor([math.inf])]) is None
    assert t_min([torch.tensor([-math.inf])], [torch.tensor([math.inf])]) is None
    assert t_min([torch.tensor([0.0])], [torch.tensor([math.nan])]) is None


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.bool, torch.uint8])
def test_other_dtypes_must_be_equal(dtype):
    a = torch.tensor([0, 1], dtype=dtype)
    assert t_min([a], [a.clone()]) == -10
    assert t_min([a], [a.flip(0)]) is None


def test_large_integers_are_told_apart():
    assert t_min([torch.tensor([2**53])], [torch.tensor([2**53 + 1])]) is None


def test_the_worst_output_decides_and_the_worst_element_is_named():
    comparison = Comparison()
    exact = torch.ones(2, 3)
    comparison.add(exact, exact, 0, 0)
    off = exact.clone()
    off[1, 2] += 1e-3
    comparison.add(off, exact, 1, 1)
    assert comparison.t_min == -3
    assert (comparison.worst.draw, comparison.worst.output, comparison.worst.index) == (1, 1, (1, 2))
    assert comparison.max_abs_error == pytest.approx(1e-3, rel=1e-3)
    assert "output 1[1, 2] of draw 1" in str(comparison.worst)


def test_empty_outputs_agree_and_mismatched_ones_are_an_error():
    assert t_min([torch.empty(0, 3)], [torch.empty(0, 3)]) == -10
    with pytest.raises(ValueError):
        Comparison().add(torch.ones(2), torch.ones(2, 1), 0, 0)
    with pytest.raises(ValueError):
        Comparison().add(torch.ones(2), torch.ones(2).double(), 0, 0)


def test_an_output_without_dimensions():
    comparison = Comparison()
    comparison.add(torch.tensor(2.0), torch.tensor(1.0), 0, 0)
    assert comparison.t_min == 0
    assert str(comparison.worst) == "output 0 of draw 0: expected 1, got 2"


def test_numbers_of_several_calls_with_room_between_them():
    memory = torch.arange(512, dtype=torch.float32)
    apart = memory.as_strided((3,), (128,))
    comparison = Comparison()
    comparison.add(apart, apart.clone(), 0, 0)
    comparison.add(apart[:1], apart[:1].clone(), 0, 0)
    assert comparison.t_min == -10 and comparison.max_abs_error == 0

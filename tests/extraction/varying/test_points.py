"""Shape points: how many, which are always there, and that they climb."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extraction.varying.shape_points import LADDERS, MAX_POINTS, kind_of, points

NAMES = ("batch", "sequence", "decoder_sequence", "height", "width", "size", "samples", "frames", "image_batch", "s0")


@given(st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3000), min_size=1), st.integers(1, MAX_POINTS))
def test_points_are_different_joint_and_few(traced: dict[str, int], limit: int) -> None:
    found = points(traced, limit)
    assert found[0] == traced
    assert 1 <= len(found) <= limit
    assert all(point.keys() == traced.keys() and min(point.values()) >= 1 for point in found)
    assert all(found.count(point) == 1 for point in found)


@given(st.dictionaries(st.sampled_from(NAMES[:9]), st.just(5), min_size=1))
def test_ten_points_from_small_to_large_with_batch_one(traced: dict[str, int]) -> None:
    others = points(traced)[1:]
    assert len(others) == MAX_POINTS - 1
    elements = [math.prod(point.values()) for point in others]
    assert elements[-1] > 4 * elements[0]
    extents = [name for name in traced if "batch" not in name]
    if extents and len(extents) < len(traced):
        assert all(point[name] == 1 for name in traced.keys() - set(extents) for point in others[:3])
    elif not extents:
        assert others[0] == dict.fromkeys(traced, 1)
    climbing = [[point[name] for point in others] for name in traced]
    assert all(ladder[0] == min(ladder) for ladder in climbing)


def test_sizes_are_those_of_the_modality() -> None:
    assert {"batch": 1, "height": 224, "width": 224} in points({"batch": 2, "height": 256, "width": 192})
    assert {"batch": 1, "height": 480, "width": 640} in points({"batch": 2, "height": 224, "width": 224})
    assert {"batch": 8, "sequence": 128} in points({"batch": 2, "sequence": 37})
    assert max(point["frames"] for point in points({"frames": 8})) == 64  # a video's
    assert max(point["frames"] for point in points({"frames": 500})) == 3000  # a spectrogram's
    assert points({"s0": 12})[1:4] == [{"s0": 3}, {"s0": 6}, {"s0": 9}]


def test_a_decoder_is_given_less_than_its_encoder() -> None:
    found = points({"batch": 2, "decoder_sequence": 60, "sequence": 60})[1:]
    assert sum(point["decoder_sequence"] < point["sequence"] for point in found) >= 7
    alone = points({"batch": 2, "decoder_sequence": 60})
    assert [p["decoder_sequence"] for p in alone] == [p["sequence"] for p in points({"batch": 2, "sequence": 60})]


def test_a_static_subgraph_has_one_point() -> None:
    assert points({}) == [{}]


def test_what_names_mean() -> None:
    assert kind_of("decoder_sequence") == "sequence"
    assert kind_of("image_height") == "height"
    assert kind_of("tokens2") == "sequence"
    assert kind_of("s12") is None
    assert all(len(ladder) == 9 for ladder in LADDERS.values())


def test_no_points_are_refused() -> None:
    with pytest.raises(ValueError, match="0 points"):
        points({"batch": 2}, 0)

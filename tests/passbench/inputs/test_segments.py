"""Segments of memory: scaled, shifted and reached as one by one, in a few operations."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from passbench.inputs.draw import generator
from passbench.inputs.segments import move_rows, of_rows, one_of_each, rows, scale_and_shift, segment_of, spread


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 9), st.integers(0, 99))
@settings(max_examples=200)
def test_segments_are_scaled_and_shifted_as_one_by_one(lengths, unit, seed):
    gen, lengths = generator(seed, 0, "cpu"), [unit * length for length in lengths]
    scales, shifts = torch.rand((2, len(lengths)), generator=gen)
    values = torch.randn(sum(lengths), generator=gen)
    wanted = torch.cat([x * a + b for x, a, b in zip(values.split(lengths), scales, shifts, strict=True)])
    scale_and_shift(values, torch.tensor(lengths), scales, shifts)
    assert torch.equal(values, wanted)


def test_what_belongs_to_a_segment_is_written_out_once_a_row():
    lengths = torch.tensor([512, 256, 1280])
    assert rows(torch.empty(2048), lengths).shape == (8, 256)
    assert of_rows(torch.tensor([1, 2, 3]), lengths).flatten().tolist() == [1, 1, 2, 3, 3, 3, 3, 3]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=20), st.randoms(use_true_random=False))
def test_pieces_are_moved_as_one_by_one(sizes, chance):
    source = torch.arange(3 * sum(sizes) + 20).view(-1, 1).expand(-1, 2).contiguous()
    target, free, pieces = -source, 0, []
    for size in sizes:
        free += chance.randrange(3)
        pieces.append((chance.randrange(len(source) - size), free, size))
        free += size
    wanted = target.clone()
    for begin, place, size in pieces:
        wanted[place : place + size] = source[begin : begin + size]
    move_rows(target, source, torch.tensor(pieces).T)
    assert torch.equal(target, wanted)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(0, 99))
def test_one_element_of_each_segment(lengths, seed):
    there = torch.tensor(lengths)
    places = one_of_each(there, generator(seed, 0, "cpu"))
    assert segment_of(places, there).tolist() == list(range(len(lengths)))


def test_any_element_of_a_segment_may_be_the_one():
    gen, there = generator(0, 0, "cpu"), torch.tensor([3, 5])
    assert {place for _ in range(200) for place in one_of_each(there, gen).tolist()} == set(range(8))
    assert {place for _ in range(200) for place in one_of_each(there, gen, 2).tolist()} == {0, 1, 3, 4}


@pytest.mark.parametrize(("size", "count"), [(1, 1), (2, 5), (300, 1), (600, 7), (1000, 3)])
def test_what_is_spread_lies_anywhere_and_never_on_each_other(size, count):
    gen = generator(0, 0, "cpu")
    draws = [spread(size, count, gen).tolist() for _ in range(8 * size)]
    assert all(len(set(one)) == len(one) == min(size, count) for one in draws)
    assert {place for one in draws for place in one} == set(range(size))

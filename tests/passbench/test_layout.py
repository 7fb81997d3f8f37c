import os
import random
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from passbench import layout as lay
from passbench.arena import ALIGNMENT, CpuArena, extent, open_handle, size_of, tensor_at
from passbench.inputs import Distribution
from passbench.wire import Kind, OutputMeta, TensorAt
from storage.records import Input
from tests.passbench.samples import spec

SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
DTYPES = st.sampled_from(["float32", "bfloat16", "int64", "bool", "complex64"])
OUT = OutputMeta(Kind.TENSOR, torch.float32, (2, 3), (3, 1), -1)


@given(st.lists(st.tuples(SHAPES, DTYPES), min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 99))
@settings(deadline=None)
def test_nothing_overlaps_and_everything_is_aligned(inputs, calls, seed):
    specs = tuple(spec(f"x{n}", *shape, dtype=dtype) for n, (shape, dtype) in enumerate(inputs))
    layout = lay.lay_out(specs, (OUT, OUT), calls, random.Random(seed))
    ats = [at for call in layout.calls for at in (*call.inputs, *call.outputs)]
    spans = sorted((at.offset, at.offset + size_of(at)) for at in ats)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert all(at.offset % ALIGNMENT == 0 for at in ats)
    assert spans[0][0] == layout.start and spans[-1][1] == layout.end
    assert layout.end - layout.start == calls * lay.call_bytes(specs, (OUT, OUT))


def test_starts_move():
    rng = random.Random(0)
    assert len({lay.lay_out((spec("x", 3),), (), 1, rng).start for _ in range(20)}) > 10


@pytest.mark.parametrize("stride", [(4, 1), (1, 3), (0, 1), (8, 2)])
def test_both_sides_see_the_same_tensor_alone_in_its_storage(stride):
    arena = CpuArena(1 << 16)
    other = open_handle(arena.handle)
    one = (Input("x", "input", "float32", (3, 4), stride),)
    layout = lay.lay_out(one, (OUT,), 2, random.Random(0))
    lay.draw(arena.bytes, layout, one, 0, 0, Distribution.NORMAL)
    (first,), (second,) = (call.inputs for call in layout.calls)
    seen = tensor_at(other, first)
    assert (seen.shape, seen.stride()) == ((3, 4), stride)
    assert torch.equal(seen, lay.view(arena.bytes, first))
    assert not torch.equal(seen, tensor_at(other, second))
    assert not seen._is_view() and seen.storage_offset() == 0
    assert seen.untyped_storage().nbytes() == extent((3, 4), stride) * 4
    (slot,) = layout.calls[0].outputs
    lay.poison(arena.bytes, (slot,))
    assert lay.is_poison(arena.bytes, slot) and torch.isnan(lay.view(arena.bytes, slot)).all()
    tensor_at(other, slot).fill_(2)
    assert lay.view(arena.bytes, slot).eq(2).all() and not lay.is_poison(arena.bytes, slot)
    arena.close()


def test_an_arena_grows_and_cannot_be_cut_short():
    arena = CpuArena(4096)
    arena.bytes[:4] = 7
    arena.grow(1 << 20)
    assert arena.bytes.numel() == 1 << 20 and arena.bytes[3] == 7
    with pytest.raises(PermissionError):
        os.ftruncate(arena.fd, 0)
    arena.close()


def test_without_elements():
    arena = CpuArena(4096)
    at = TensorAt(0, torch.float32, (0, 3), (3, 1))
    assert size_of(at) == 0 and tensor_at(arena, at).shape == (0, 3)
    arena.close()

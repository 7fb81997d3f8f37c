import os
import random
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from passbench.inputs import batch_layout as lay
from passbench.inputs.distribution import CORRECTNESS, Distribution
from passbench.ipc.messages import Block, OutputKind, OutputMeta
from passbench.ipc.shared_memory import ALIGNMENT, CpuSharedMemory, extent, input_tensors, open_handle, output_views
from storage.records import Input
from tests.passbench.samples import spec

SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)
DTYPES = st.sampled_from(["float32", "bfloat16", "int64", "bool", "complex64"])
OUT = OutputMeta(OutputKind.TENSOR, torch.float32, (2, 3), (3, 1), -1)


@given(st.lists(st.tuples(SHAPES, DTYPES), min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 99))
def test_nothing_overlaps_and_everything_is_aligned(inputs, calls, seed):
    specs = tuple(spec(f"x{n}", *shape, dtype=dtype) for n, (shape, dtype) in enumerate(inputs))
    layout = lay.lay_out(specs, (OUT, OUT), calls, random.Random(seed))
    blocks = [*layout.batch.inputs, *layout.batch.outputs]
    spans = sorted((start, start + b.size) for b in blocks for start in b.starts)
    assert all(a[1] <= b[0] for a, b in pairwise(spans))
    assert all(start % ALIGNMENT == 0 for start, _ in spans)
    assert all(b.size >= extent(b.shape, b.stride) * b.dtype.itemsize for b in blocks)
    assert spans[0][0] == layout.start and spans[-1][1] == layout.end
    assert layout.end - layout.start <= calls * lay.call_bytes(specs, (OUT, OUT))


def test_starts_move():
    rng = random.Random(0)
    assert len({lay.lay_out((spec("x", 3),), (), 1, rng).start for _ in range(20)}) > 10


@pytest.mark.parametrize("stride", [(4, 1), (1, 3), (0, 1), (8, 2)])
def test_both_sides_see_the_same_tensors_each_alone_in_its_storage(stride):
    shared = CpuSharedMemory(1 << 16)
    other = open_handle(shared.handle, shared.fd, torch.device("cpu"))
    one = (Input("x", "input", "float32", (3, 4), stride),)
    layout = lay.lay_out(one, (OUT,), 2, random.Random(0))
    lay.draw(shared.bytes, layout, one, 0, 0, Distribution.NORMAL)
    (block,), (slot,) = layout.batch.inputs, layout.batch.outputs
    first, second = input_tensors(other, block, range(2), {})
    assert (first.shape, first.stride()) == ((3, 4), stride)
    assert all(torch.equal(x, lay.at(shared.bytes, block, n)) for n, x in enumerate((first, second)))
    assert not torch.equal(first, second)
    assert not first._is_view() and first.storage_offset() == 0
    assert first.untyped_storage().nbytes() == extent((3, 4), stride) * 4
    lay.poison(shared.bytes, (slot,))
    assert lay.poisoned(shared.bytes, slot).all() and torch.isnan(lay.view(shared.bytes, slot)).all()
    output_views(other, slot)[1].fill_(2)
    assert lay.view(shared.bytes, slot)[1].eq(2).all()
    assert lay.poisoned(shared.bytes, slot).tolist() == [True, False]
    shared.close()


def test_what_a_call_does_to_its_tensors_does_not_reach_the_next_call():
    shared, made = CpuSharedMemory(1 << 16), {}
    block = Block((512,), 512, torch.float32, (3, 4), (4, 1))
    (first,) = input_tensors(shared, block, [0], made)
    first.fill_(1).unsqueeze_(0).set_(torch.ones(7))
    (second,) = input_tensors(shared, block, [0], made)
    assert second is not first and second.shape == (3, 4) and second.eq(1).all()
    (again,) = input_tensors(shared, block._replace(shape=(4, 3), stride=(3, 1)), [0], made)
    assert again.shape == (4, 3) and again.data_ptr() == second.data_ptr()
    shared.close()


def test_every_draw_is_another_and_the_same_draw_the_same():
    one, memory = (spec("x", 100),), torch.zeros(1 << 16, dtype=torch.uint8)
    layout = lay.lay_out(one, (), 3, random.Random(0))

    def drawn(seed: int, index: int) -> torch.Tensor:
        lay.draw(memory, layout, one, seed, index, Distribution.NORMAL)
        return torch.stack([lay.at(memory, layout.batch.inputs[0], n) for n in range(3)])

    assert torch.equal(drawn(1, 0), drawn(1, 0))
    values = torch.cat([drawn(1, 0), drawn(1, 1), drawn(2, 0)])
    assert len({tuple(row.tolist()) for row in values}) == 9


def test_shared_memory_grows_and_cannot_be_cut_short():
    shared = CpuSharedMemory(4096)
    shared.bytes[:4] = 7
    shared.grow(1 << 20)
    assert shared.bytes.numel() == 1 << 20 and shared.bytes[3] == 7
    with pytest.raises(PermissionError):
        os.ftruncate(shared.fd, 0)
    shared.close()


def test_without_elements():
    shared = CpuSharedMemory(4096)
    block = Block((0, ALIGNMENT), ALIGNMENT, torch.float32, (0, 3), (3, 1))
    assert [t.shape for t in input_tensors(shared, block, range(2), {})] == [(0, 3), (0, 3)]
    assert not lay.poisoned(shared.bytes, block).any()
    shared.close()


def test_where_the_next_calls_inputs_lie_cannot_be_told():
    layout = lay.lay_out((spec("x", 100), spec("y", 7)), (OUT,), 60, random.Random(0), sealed=4, twice=4)
    for block in layout.batch.inputs:
        distances = [b - a for a, b in pairwise(block.starts)]
        assert len(set(distances)) == 5 and max(distances.count(d) for d in distances) < 30
        by_call = [block.starts[place] for place in layout.batch.order]
        assert len({b - a for a, b in pairwise(by_call)}) > 40
    assert len(layout.batch.order) == 60 and len(set(layout.batch.order) | set(layout.batch.late)) == 64


def test_gaps_hold_values_like_those_of_calls():
    one, memory = (spec("x", 100),), torch.zeros(1 << 18, dtype=torch.uint8)
    layout = lay.lay_out(one, (), 40, random.Random(0))
    lay.draw(memory, layout, one, 0, 0, Distribution.VARIED)
    assert (lay.elements(memory, layout.batch.inputs[0]) == 0).float().mean() < 0.01


class _Operations(TorchDispatchMode):
    """Counts what torch is asked to compute."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("how", "facts"),
    [*((how, {"mean": 2.0, "std": 1.0}) for how in CORRECTNESS), (Distribution.VARIED, {"low": -1.0, "high": 2.0})],
)
def test_many_inputs_take_no_more_operations_than_one(how, facts):
    def operations(number):
        specs = tuple(Input(f"x{n}", "parameter", "bfloat16", (8, 4), (4, 1), **facts) for n in range(number))
        layout = lay.lay_out(specs, (), 3, random.Random(0))
        memory = torch.empty(layout.middle, dtype=torch.uint8)
        with _Operations() as counted:
            lay.draw(memory, layout, specs, 0, 0, how)
        return counted.count

    assert operations(40) == operations(2)

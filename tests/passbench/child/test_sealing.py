"""Sealed calls: their inputs arrive when their turn has come, and their outputs are taken when it is over."""

import random

import pytest
import torch

from passbench.child.outputs import BadOutput
from passbench.child.sealing import SealedCalls
from passbench.inputs import batch_layout as lay
from passbench.inputs.distribution import Distribution
from passbench.ipc.messages import OutputKind, OutputMeta
from passbench.ipc.shared_memory import CpuSharedMemory, input_tensors, output_views
from tests.passbench.samples import spec

SPECS = (spec("x", 3, 4), spec("y", 5, dtype="float16", stride=(2,)), spec("n", dtype="int", low=3.0))
OUT = OutputMeta(OutputKind.TENSOR, torch.float32, (3, 4), (4, 1), -1)


@pytest.fixture
def shared():
    one = CpuSharedMemory(1 << 18)
    yield one
    one.close()


def handed_over(shared, calls=6, sealed=3, twice=3, seed=0):
    """What was drawn, and where; `shared` is as it is before the calls."""
    layout = lay.lay_out(SPECS, (OUT,), calls, random.Random(seed), sealed=sealed, twice=twice)
    drawn = torch.zeros_like(shared.bytes)
    lay.draw(drawn, layout, SPECS, seed, 0, Distribution.VARIED)
    shared.bytes.copy_(drawn)
    lay.withhold(shared.bytes, drawn, layout)
    return drawn, layout


def value(memory, layout, call):
    return lay.at(memory, layout.batch.inputs[0], layout.batch.order[call])


def test_a_sealed_calls_inputs_are_another_calls_until_they_are_delivered(shared):
    drawn, layout = handed_over(shared)
    sealed = SealedCalls(shared, layout.batch)
    assert len(sealed.calls) == 3 == len(layout.batch.late)
    for call in range(6):
        arrived = torch.equal(value(shared.bytes, layout, call), value(drawn, layout, call))
        assert arrived == (call not in sealed.calls)
    for call in range(6):
        sealed.deliver(call)
        assert torch.equal(value(shared.bytes, layout, call), value(drawn, layout, call))
    assert all(lay.same(shared.bytes, drawn, block) for block in layout.batch.inputs[:2])


def test_which_calls_are_sealed_is_left_to_chance(shared):
    assert len({handed_over(shared, seed=seed)[1].batch.sealed for seed in range(20)}) > 10


def test_at_a_rehearsed_call_no_other_calls_inputs_are_there(shared):
    for seed in range(8):
        layout = lay.lay_out(SPECS, (OUT,), 4, random.Random(seed), sealed=3, twice=3, rehearsed=True)
        drawn = torch.zeros_like(shared.bytes)
        lay.draw(drawn, layout, SPECS, seed, 0, Distribution.VARIED)
        shared.bytes.zero_()
        lay.hand_over_first(shared.bytes, drawn, layout)
        assert layout.batch.sealed == (1, 2, 3), "the rehearsed call is none of them"
        for block in layout.batch.inputs[:2]:
            for place in range(len(block.starts)):
                there = lay.at(shared.bytes, block, place)
                expected = lay.at(drawn, block, place) if place == layout.batch.order[0] else torch.zeros(())
                assert torch.equal(there, expected.expand_as(there))


def test_without_room_the_inputs_are_there_from_the_start(shared):
    drawn, layout = handed_over(shared, twice=0)
    assert len(layout.batch.sealed) == 3 and layout.batch.late == ()
    SealedCalls(shared, layout.batch).deliver(layout.batch.sealed[0])
    assert all(lay.same(shared.bytes, drawn, block) for block in layout.batch.inputs[:2])


def test_inputs_lie_alike_where_none_is_sealed(shared):
    """As many places hold the same values in a batch without sealed calls as in one with some, before they begin."""

    def alike(sealed):
        _, layout = handed_over(shared, calls=12, sealed=sealed)
        first = layout.batch.inputs[0]
        places = {lay.at(shared.bytes, first, n).numpy().tobytes() for n in range(len(first.starts))}
        return len(first.starts), len(places)

    assert alike(0) == alike(3) == (15, 12)


def test_what_was_taken_must_stay(shared):
    _, layout = handed_over(shared)
    outputs = [[torch.full((3, 4), float(call))] for call in range(6)]
    outputs[1][0][0] = float("nan")
    for call, place in enumerate(output_views(shared, layout.batch.outputs[0])):
        place.copy_(outputs[call][0])
    sealed = SealedCalls(shared, layout.batch)
    sealed.check_unchanged(outputs)
    outputs[min(sealed.calls)][0][2, 3] = 7.0
    with pytest.raises(BadOutput, match="has changed after the call"):
        sealed.check_unchanged(outputs)


def test_a_calls_tensors_are_its_own(shared):
    drawn, layout = handed_over(shared, sealed=0)
    block = layout.batch.inputs[1]
    tensors = input_tensors(shared, block, layout.batch.order, {})
    for call, tensor in enumerate(tensors):
        assert tensor.stride() == (2,)
        assert torch.equal(tensor, lay.at(drawn, block, layout.batch.order[call]))

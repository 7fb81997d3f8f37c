"""Inputs of a graph's calls, each in memory of its own."""

import torch

from agent.ahead.own_inputs import OwnInputs, row_bytes


def _given():
    strided = torch.arange(40.0).reshape(5, 8)[1:, 2:7:2]
    return [(strided, 3, torch.arange(6).to(torch.int8)), (strided * 2.0, 3, torch.zeros(6, dtype=torch.int8))]


def test_each_call_has_the_given_inputs_in_memory_of_its_own():
    given = _given()
    own = OwnInputs([*given, given[0]])
    memory = {x.untyped_storage().data_ptr() for row in (*own.rows, *given) for x in row if isinstance(x, torch.Tensor)}
    assert len(memory) == 10
    for have, want in zip(own.rows, [*given, given[0]], strict=True):
        assert have[1] == 3
        for a, b in ((have[0], want[0]), (have[2], want[2])):
            assert torch.equal(a, b) and (a.stride(), a.storage_offset()) == (b.stride(), b.storage_offset())


def test_what_calls_have_written_over_is_written_anew():
    given = _given()
    own = OwnInputs(given)
    for row in own.rows:
        row[0].zero_()
        row[2].fill_(7)
    own.write()
    for have, want in zip(own.rows, given, strict=True):
        assert torch.equal(have[0], want[0]) and torch.equal(have[2], want[2])


def test_calls_without_tensors_or_without_elements():
    own = OwnInputs([(3,), (4,)])
    own.write()
    assert own.rows == [(3,), (4,)]
    own = OwnInputs([(torch.ones(2), torch.zeros(0))])
    own.rows[0][0].zero_()
    own.write()
    assert own.rows[0][0].tolist() == [1.0, 1.0] and own.rows[0][1].shape == (0,)


def test_the_bytes_of_a_call_have_the_gaps_in_memory_as_well():
    assert row_bytes(_given()[0]) == 160 + 6

"""Inputs of many calls drawn at once: each in memory of its own, as its record says, unlike those of other calls."""

import torch

from agent.ahead.many_draws import distribution, rows_together
from passbench.inputs.distribution import Distribution
from storage.records import Input
from tests.agent.support import tensor

SPECS = (
    tensor(2, 3, stride=(1, 5)),
    tensor(4, dtype="int64", low=3.0, high=9.0),
    tensor(3, dtype="float16"),
    tensor(0, 4),
    Input("n", "input", "int", (), (), low=7.0),
)
CPU = torch.device("cpu")


def test_each_input_of_a_call_is_as_its_record_says_and_lies_alone():
    rows = rows_together(SPECS, 1, 0, 5, CPU)
    assert len(rows) == 5 and all(row[-1] == 7 for row in rows)
    for row in rows:
        assert [(x.shape, x.stride()) for x in row[:2]] == [((2, 3), (1, 5)), ((4,), (1,))]
        assert row[1].min() >= 3 and row[1].max() <= 9 and row[2].dtype == torch.float16 and row[3].numel() == 0
        assert row[0].untyped_storage().nbytes() == 12 * 4, "from the first element to the last, gaps included"
    tensors = [x for row in rows for x in row[:3]]
    assert len({x.untyped_storage().data_ptr() for x in tensors}) == len(tensors)
    assert len({tuple(row[0].flatten().tolist()) for row in rows}) == 5


def test_a_batch_is_the_same_again_and_unlike_the_next():
    one, again, other = ([row[0] for row in rows_together(SPECS, 1, n, 3, CPU)] for n in (1, 1, 2))
    assert all(map(torch.equal, one, again)) and not any(map(torch.equal, one, other))


def test_no_inputs_make_empty_rows():
    assert rows_together((), 1, 0, 3, CPU) == [(), (), ()]


def test_every_second_batch_is_varied_and_ten_have_all_distributions():
    hows = [distribution(n) for n in range(10)]
    assert hows[1::2] == [Distribution.VARIED] * 5 and set(hows) == set(Distribution)

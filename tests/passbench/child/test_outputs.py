"""What an output of a pass may be, and what may become of it."""

import pytest
import torch

from passbench.child.outputs import (
    BadOutput,
    KeptOutputs,
    MemoryBefore,
    check,
    check_filled,
    check_memory,
    check_places,
    describe_all,
    differing,
)
from passbench.ipc.messages import OutputMeta

CPU = torch.device("cpu")


def eager(*outputs: object, inputs: tuple = ()) -> tuple[OutputMeta, ...]:
    return describe_all(outputs, inputs, CPU)


def judge(outputs: tuple, expected: tuple[OutputMeta, ...], inputs: tuple = ()) -> None:
    check(outputs, inputs, expected, strict=True)
    check_memory(outputs, expected, CPU)


def test_what_eager_returns_is_described():
    x, whole = torch.ones(4), torch.ones(2, 3)
    metas = eager(x.view(2, 2), whole[0], 3, whole[1], None, torch.ones(0), inputs=(x,))
    assert [m.aliases for m in metas] == [0, -1, -1, -1, -1, -1]
    assert [m.shares for m in metas] == [-1, -1, -1, 1, -1, -1]


def test_outputs_lie_in_the_result_where_eagers_do():
    one, two, three = torch.ones(1), torch.ones(2), 3
    expected = describe_all((one, [two, three]), (), CPU)
    check_places([one, (two, three)], expected)
    by_key = (one, {"a": two, "b": three}), (one, {0: two, 1: three}), {"0": one, "1/0": two, "1/1": three}
    for result in ((one, two, three), ((one, two), three), ([one], [two, three]), *by_key):
        with pytest.raises(BadOutput, match="is not where eager has it"):
            check_places(result, expected)


@pytest.mark.parametrize(
    "output",
    [
        torch.zeros(3, 4).t(),
        torch.zeros(4, 1).expand(4, 3),
        torch.zeros(4, 8)[:, :3],
        torch.zeros(4, 6)[:, ::2],
    ],
    ids=["transposed", "expanded", "gapped", "stepped"],
)
def test_strides_are_eagers_or_contiguous(output):
    expected = eager(torch.zeros(4, 3))
    with pytest.raises(BadOutput, match="has strides"):
        judge((output,), expected)
    judge((output,), eager(output))
    judge((torch.zeros(4, 3),), eager(output))


def test_strides_of_dimensions_without_steps_do_not_count():
    judge((torch.zeros(4, 1).as_strided((4, 1), (1, 7)),), eager(torch.zeros(4, 1)))
    judge((torch.zeros(0, 5).t(),), eager(torch.zeros(5, 0)))


def test_outputs_share_memory_where_eagers_do():
    one, two, whole = torch.zeros(6), torch.zeros(6), torch.zeros(2, 6)
    apart, together = eager(one, two), eager(whole[0], whole[1])
    judge((whole[0], whole[1]), apart)  # side by side
    judge((one, one.view(6)), together)
    for outputs in ((one, one.view(6)), (whole.view(12)[0:6], whole.view(12)[3:9])):
        with pytest.raises(BadOutput, match="output 1 shares memory with output 0"):
            judge(outputs, apart)


def test_two_views_of_one_input():
    x = torch.zeros(6)
    judge((x, x.view(2, 3)), eager(x, x.view(2, 3), inputs=(x,)), inputs=(x,))
    with pytest.raises(BadOutput, match="shares memory with input 0"):
        judge((x,), eager(torch.zeros(6), inputs=(x,)), inputs=(x,))


def test_values_are_written_not_promised():
    z = torch.zeros(3, dtype=torch.complex64)
    with pytest.raises(BadOutput, match="conjugated or negated"):
        judge((z.conj(),), eager(z))


def test_no_two_calls_return_one_allocation():
    kept, pool = KeptOutputs(), torch.zeros(8, 3)
    kept.check([([torch.zeros(3)], ()), ([torch.zeros(3)], ())])
    for outputs in (pool[0], pool[1]), (pool[2], pool[2].view(3)):
        with pytest.raises(BadOutput, match="another call has returned"):
            kept.check([([output], ()) for output in outputs])
    kept.check([([pool[0], pool[1]], ())])


def test_what_was_returned_is_not_returned_again_nor_written_to():
    kept, output = KeptOutputs(), torch.tensor([1.0, float("nan")])
    kept.keep_one([([output], ())])
    kept.check([([torch.zeros(2)], ())])
    with pytest.raises(BadOutput, match="an earlier call has returned"):
        kept.check([([output.view(2, 1)], ())])
    output[0] = 2.0
    with pytest.raises(BadOutput, match="has written over the output of an earlier one"):
        kept.check([([torch.zeros(2)], ())])
    kept.forget()
    kept.check([([output], ())])


@pytest.mark.parametrize("dtype", [torch.bool, torch.float16, torch.float32, torch.int64, torch.complex128])
def test_outputs_of_every_width_are_held(dtype):
    kept, output = KeptOutputs(), torch.ones(2, 4, dtype=dtype)[:, ::2]
    kept.keep_one([([output, None, 3], ())])
    kept.check([])
    output.zero_()
    with pytest.raises(BadOutput):
        kept.check([])


def test_an_output_in_an_inputs_memory_is_the_inputs():
    kept, x = KeptOutputs(), torch.zeros(3)
    kept.keep_one([([x], (x,))])
    kept.check([([x], (x,))])


def test_no_output_lies_in_memory_that_was_there_before():
    pool, held, x = torch.zeros(8, 3), {"kept": [torch.zeros(2)]}, torch.zeros(3)
    replaced = torch.zeros(3)
    before = MemoryBefore()
    replaced = torch.zeros(3)  # perhaps where the one before it was
    before.check([([replaced, torch.zeros(3), None, 1], ()), ([x], (x,)), ([torch.zeros(0)], ())])
    for output in (pool, pool[1].view(3, 1), held["kept"][0], x):
        with pytest.raises(BadOutput, match="allocated before their calls"):
            before.check([([torch.zeros(3)], ()), ([output], ())])
    taken = pool[2:]
    del pool
    with pytest.raises(BadOutput, match="allocated before their calls"):
        before.check([([taken], ())])


def test_most_calls_find_no_memory_that_was_let_go_meanwhile():
    """What was kept before the calls is filled for none of them: zeros of a padding may have been prepared there."""
    kept = torch.zeros(12, 1000)
    rows = range(kept.data_ptr(), kept.data_ptr() + kept.nbytes)
    halves = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    fresh = [torch.zeros(1000) for _ in range(6)]

    def called(*outputs):
        return [((x, None, 1), ()) for x in outputs]

    for held in ([rows], halves[::-1]):
        check_filled(called(*kept[:6], *fresh), held)  # as where each call replaces what it has kept
        check_filled(called(*kept[:4]), held)
        with pytest.raises(BadOutput, match="let go while"):
            check_filled(called(*kept[:5]), held)
        with pytest.raises(BadOutput, match="let go while"):
            check_filled(called(*kept[5:], *fresh), held)
    check_filled([((x,), (x,)) for x in kept], [rows])  # views of inputs
    check_filled(called(*kept), [])


def test_few_calls_are_held():
    kept = KeptOutputs()
    for _ in range(50):
        kept.keep_one([([torch.zeros(3)], ())])
    assert len(kept._held) == KeptOutputs._MOST_CALLS


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.bfloat16, torch.float32, torch.int64, torch.complex64, torch.complex128]
)
def test_values_that_differ_in_a_bit(dtype):
    values = torch.tensor([0, 1, 1], dtype=dtype)
    other = values.clone()
    other[2] = 0
    assert differing([(values, values.clone()), (values, other), (values[:0], other[:0])]) == [False, True, False]
    assert differing([]) == []


def test_nan_is_the_same_as_itself_and_zero_not_as_minus_zero():
    nan, zero = torch.tensor([float("nan")]), torch.tensor([0.0])
    assert differing([(nan, nan.clone()), (zero, -zero)]) == [False, True]

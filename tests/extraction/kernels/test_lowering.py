from unittest.mock import patch

import pytest
import torch
import torch._inductor.scheduler
from torch._inductor.lowering import lowerings
from torch._inductor.runtime.hints import DeviceProperties

from extraction.analysis.prepared import prepare
from extraction.kernels import reference_gpu
from extraction.kernels.lowering import LoweringError, kernels_by_op, lowered
from extraction.kernels.shared_kernels import early
from storage.graph.record import RUN_DEVICE, Graph, Op, Ref
from storage.records import Input, TracedGraph
from tests.support.graphs import corpus


def _input(*shape: int) -> Input:
    return Input("x", "input", "float32", shape, torch.empty(shape, device="meta").stride())


def _kernels(*ops: Op, inputs: tuple[Input, ...] = (_input(8, 8),)) -> list[frozenset[int]]:
    return kernels_by_op(Graph(len(inputs), ops, (Ref(len(inputs) + len(ops) - 1),)), inputs)


def _call(target: str, *args: object) -> Op:
    return Op("function", target, args, {})


def test_pointwise_ops_share_a_kernel() -> None:
    ops = (_call("torch.relu", Ref(0)), _call("torch.exp", Ref(1)), _call("operator.neg", Ref(2)))
    assert _kernels(*ops) == [{0}, {0}, {0}]


def test_a_library_call_is_a_kernel_of_its_own() -> None:
    relu, product, exp = _kernels(
        _call("torch.relu", Ref(0)), _call("torch.matmul", Ref(1), Ref(1)), _call("torch.exp", Ref(2))
    )
    assert len(relu) == len(product) == len(exp) == 1
    assert len(relu | product | exp) == 3


def test_views_are_free() -> None:
    ops = (_call("torch.relu", Ref(0)), Op("method", "view", (Ref(1), 64), {}), _call("torch.matmul", Ref(0), Ref(0)))
    assert _kernels(*ops)[1] == frozenset()


def test_what_has_no_data_in_common_shares_no_kernel_needs() -> None:
    softmax = Op("function", "torch.nn.functional.softmax", (Ref(0), -1), {})
    total = Op("method", "sum", (Ref(1), 0), {})
    needs = _kernels(softmax, total)
    assert not needs[1] <= needs[0]


def test_every_op_of_real_graphs_that_computes_needs_a_kernel() -> None:
    for traced in corpus():
        prepared = prepare(traced)
        assert traced.kernels is not None
        assert len(traced.kernels) == len(traced.graph.ops)
        for op, needed in enumerate(traced.kernels):
            assert bool(needed) or not prepared.computes(op), traced.graph.ops[op]


def test_a_bias_is_a_kernel_behind_the_convolution_and_joins_what_follows() -> None:
    weight, bias = _input(8, 4, 3, 3), _input(8)
    ops = (_call("torch.conv2d", Ref(0), Ref(1), Ref(2)), _call("torch.relu", Ref(3)))
    convolution, relu = _kernels(*ops, inputs=(_input(1, 4, 9, 9), weight, bias))
    assert len(convolution) == 2
    assert relu < convolution
    ops = (_call("torch.conv2d", Ref(0), Ref(1)), _call("torch.relu", Ref(2)))
    convolution, relu = _kernels(*ops, inputs=(_input(1, 4, 9, 9), weight))
    assert not convolution & relu


def test_reading_through_the_views_of_an_op_is_not_its_kernel() -> None:
    """A linear layer of a 3-D input is a product, and a view that shows in the kernel of whoever reads it."""
    ops = (_call("torch.nn.functional.linear", Ref(0), Ref(1), Ref(2)), _call("torch.nn.functional.gelu", Ref(3)))
    linear, gelu = _kernels(*ops, inputs=(_input(2, 5, 8), _input(8, 8), _input(8)))
    assert len(linear) == len(gelu) == 1
    assert not linear & gelu


def test_an_op_needs_every_kernel_that_computes_a_part_of_it_first() -> None:
    """A large group norm: partial sums, then the rest of them, then what follows normalises."""
    norm, silu = _kernels(
        _call("torch.nn.functional.group_norm", Ref(0), 1), _call("torch.nn.functional.silu", Ref(1)),
        inputs=(_input(1, 64, 112, 112),),
    )  # fmt: skip
    assert len(norm) > 1
    assert silu <= norm


def test_cat_of_few_is_one_kernel() -> None:
    _relu, _exp, cat, tanh = _kernels(
        _call("torch.relu", Ref(0)),
        _call("torch.exp", Ref(0)),
        _call("torch.cat", [Ref(1), Ref(2)]),
        _call("torch.tanh", Ref(3)),
    )
    assert tanh <= cat


def test_attention_is_one_library_call() -> None:
    heads, mask = _input(2, 4, 16, 8), Input("mask", "input", "bool", (16, 16), (16, 1))
    target = "torch.nn.functional.scaled_dot_product_attention"
    assert [len(k) for k in _kernels(_call(target, Ref(0), Ref(0), Ref(0)), inputs=(heads,))] == [1]
    masked = _kernels(_call(target, Ref(0), Ref(0), Ref(0), Ref(1)), inputs=(heads, mask))
    assert [len(k) for k in masked] == [2]
    uneven = _kernels(_call(target, Ref(0), Ref(0), Ref(0)), inputs=(_input(2, 4, 16, 7),))
    assert len(uneven[0]) > 2


def test_constants_are_made_without_a_gpu() -> None:
    constant = Op("function", "torch.tensor", (-1e9,), {"dtype": torch.float32, "device": RUN_DEVICE})
    several = Op("function", "torch.tensor", ([1, 2, 3],), {"device": RUN_DEVICE})
    where = _call("torch.where", Ref(0), Ref(1), Ref(2))
    add = _call("torch.add", Ref(4), Ref(3))
    mask = Input("mask", "input", "bool", (8, 3), (3, 1))
    needs = _kernels(constant, several, where, add, inputs=(mask, _input(8, 3)))
    assert needs[2] == needs[3]
    assert len(needs[3]) == 1


def test_lowering_says_for_which_device_and_asks_no_gpu() -> None:
    traced = corpus()[0]
    words = set()
    for device in ("cpu", "reference"):
        with lowered(traced.graph, traced.inputs, device) as result:
            words.add(result.device)
    assert len(words) == 2
    with pytest.raises(ValueError, match="tpu"), lowered(traced.graph, traced.inputs, "tpu"):
        pass


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_not_pretended_as_one() -> None:
    traced = corpus()[0]
    with pytest.raises(LoweringError, match="no GPU"), lowered(traced.graph, traced.inputs, "cuda"):
        pass


def test_the_reference_gpu_is_gone_afterwards() -> None:
    before = (DeviceProperties.create, torch.cuda.get_device_properties, torch._inductor.scheduler.has_triton)
    with reference_gpu.pretended():
        assert DeviceProperties.create(torch.device("cuda", 0)).multi_processor_count == 132
        assert torch.cuda.get_device_capability() == (9, 0)
    after = (DeviceProperties.create, torch.cuda.get_device_properties, torch._inductor.scheduler.has_triton)
    assert before == after
    assert not torch.cuda.is_initialized()


@pytest.mark.gpu
def test_a_gpu_schedules_as_the_reference() -> None:
    for traced in corpus():
        assert kernels_by_op(traced.graph, traced.inputs, "cuda") == kernels_by_op(traced.graph, traced.inputs)


def test_what_cannot_be_lowered_says_so() -> None:
    with pytest.raises(LoweringError, match="op 0 does not accept"):
        _kernels(Op("method", "view", (Ref(0), 7), {}))
    graph = Graph(1, (Op("method", "view", (Ref(0), 7), {}),), (Ref(1),))
    with pytest.raises(LoweringError, match="TorchInductor cannot lower"), lowered(graph, [_input(8, 8)]):
        pass


def test_pointwise_ops_belong_to_the_first_kernel_that_could_compute_them() -> None:
    """By hand: a chain whose schedule leaves ops 1 and 4 to a later kernel, with a library call between."""
    ops = (
        _call("torch.relu", Ref(0)),
        _call("torch.exp", Ref(1)),
        _call("torch.matmul", Ref(1), Ref(1)),
        _call("torch.tanh", Ref(3)),
        _call("torch.add", Ref(2), Ref(4)),
        _call("torch.abs", Ref(3)),
    )
    prepared = prepare(TracedGraph("test:made", 0, Graph(1, ops, (Ref(5), Ref(6))), (_input(8, 8),)))
    needs = [frozenset((k,)) for k in (0, 3, 1, 2, 3, 3)]
    pointwise = {0, 1, 3, 4, 5}
    moved = early(prepared, needs, {0, 2, 3}, pointwise)
    assert moved == [{0}, {0}, {1}, {2}, {2}, {3}]  # nothing is fused behind the library call, kernel 1
    assert early(prepared, needs, {0, 2, 3}, pointwise - {1, 4}) == needs


def test_a_variable_that_test_services_set_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    op = torch.ops.aten.upsample_bilinear2d.default
    graph = Graph(
        1, (Op("function", "torch.nn.functional.interpolate", (Ref(0), (3, 4), None, "bilinear"), {}),), (Ref(1),)
    )
    with patch.dict(lowerings):
        lowerings.pop(op, None)  # as in a process that has not lowered one yet
        with lowered(graph, (_input(1, 2, 8, 8),)) as found:
            assert [kernel.kind for kernel in found.kernels if kernel.kind != "nop"] == ["extern"]

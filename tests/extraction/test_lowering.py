import pytest
import torch

from extraction.lowering import LoweringError, kernels_by_op, lowered
from storage.graph import Graph, Op, Ref
from storage.records import Input
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


def test_kernels_run_no_code_and_cover_every_op_of_real_graphs() -> None:
    for traced in corpus():
        assert traced.kernels is not None
        assert len(traced.kernels) == len(traced.graph.ops)
        used = sorted({kernel for needed in traced.kernels for kernel in needed})
        with lowered(traced.graph, traced.inputs) as result:
            assert used == [n for n, kernel in enumerate(result.kernels) if kernel.kind != "nop"]


def test_what_cannot_be_lowered_says_so() -> None:
    with pytest.raises(LoweringError, match="TorchInductor cannot lower"):
        _kernels(Op("method", "view", (Ref(0), 7), {}))

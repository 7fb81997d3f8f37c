"""Meta tensors describe what the table of `meta_kernels` names as fake CPU tensors do."""

import pytest
import torch
from hypothesis import assume, given

from extraction.analysis.meta_kernels import described_by_meta_tensors
from extraction.analysis.propagate import Invalid, propagate, propagate_on_fake, propagate_on_meta
from storage.graph.record import RUN_DEVICE, Graph, Op, Ref
from storage.records import Input
from tests.support.graphs import SIDE, corpus, runnable

FUNCTIONAL = "torch.nn.functional."
UNARY = (
    *(f"torch.{name}" for name in "abs ceil cos erf exp floor log log1p neg reciprocal rsqrt sigmoid sign sin".split()),
    *(f"torch.{name}" for name in "sqrt square tanh sum mean amax amin argmax var std tril triu".split()),
    *(f"{FUNCTIONAL}{name}" for name in "elu gelu hardsigmoid hardswish hardtanh leaky_relu mish relu relu6".split()),
    *(f"{FUNCTIONAL}{name}" for name in "silu softplus dropout".split()),
    *(f".{name}" for name in "contiguous clone detach flatten half bfloat16 float double squeeze t unbind".split()),
)
BINARY = tuple(f"operator.{name}" for name in "add eq ge gt le lt mul ne pow sub truediv iadd imul isub".split())


def _op(name: str, *args: object, **kwargs: object) -> Op:
    method = name.startswith(".")
    return Op("method" if method else "function", name.removeprefix("."), args, kwargs)


def _input(shape: tuple[int, ...], order: tuple[int, ...] | None = None, dtype: str = "float32") -> Input:
    """An input whose memory is laid out in this order of its dimensions."""
    made = (
        torch.empty(shape) if order is None else torch.empty(shape).permute(order).contiguous().permute(*_back(order))
    )
    return Input("x", "input", dtype, shape, made.stride())


def _back(order: tuple[int, ...]) -> list[int]:
    return [order.index(n) for n in range(len(order))]


def _both_say_the_same(graph: Graph, inputs: list[Input]) -> None:
    on_fake = propagate_on_fake(graph, inputs)
    assert not isinstance(on_fake, Invalid), on_fake
    assert propagate_on_meta(graph, inputs) == on_fake
    assert propagate(graph, inputs) == on_fake


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_one_operand_in_any_layout(name: str, dtype: str) -> None:
    graph = Graph(1, (_op(name, Ref(0)),), (Ref(1),))
    assert described_by_meta_tensors(graph)
    for each in (_input((4, 6), None, dtype), _input((4, 6), (1, 0), dtype), _input((4, 1), None, dtype)):
        _both_say_the_same(graph, [each])


@pytest.mark.parametrize("name", BINARY)
def test_two_operands_are_broadcast_alike(name: str) -> None:
    graph = Graph(2, (_op(name, Ref(0), Ref(1)),), (Ref(2),))
    assert described_by_meta_tensors(graph)
    image = (2, 3, 5, 7)
    for left in (_input(image), _input(image, (0, 2, 3, 1)), _input(image, (3, 1, 0, 2))):
        for right in (_input(image), _input((3, 1, 1)), _input((1, 3, 5, 7), (0, 2, 3, 1)), _input((7,))):
            _both_say_the_same(graph, [left, right])


def test_images_in_both_memory_formats() -> None:
    statistics = [_input((8,)) for _ in range(4)]
    ops = (
        _op(f"{FUNCTIONAL}batch_norm", Ref(0), Ref(1), Ref(2), Ref(3), Ref(4), False, 0.1, 1e-5),
        _op(f"{FUNCTIONAL}max_pool2d", Ref(5), 3, 2, 1),
        _op(f"{FUNCTIONAL}avg_pool2d", Ref(6), 2, 2),
        _op(f"{FUNCTIONAL}adaptive_avg_pool2d", Ref(7), 1),
        _op("torch.cat", (Ref(6), Ref(6)), 1),
        _op(".chunk", Ref(9), 2, 1),
        _op("operator.getitem", Ref(10), 1),
    )
    graph = Graph(5, ops, (Ref(8), Ref(11)))
    assert described_by_meta_tensors(graph)
    for order in (None, (0, 2, 3, 1)):
        _both_say_the_same(graph, [_input((2, 8, 20, 20), order), *statistics])


ATEN = {
    "_softmax": (-1, False),
    "_log_softmax": (-1, False),
    "_safe_softmax": (-1,),
    "native_layer_norm": ([8], None, None, 1e-5),
    "max_pool2d_with_indices": ([3, 3], [2, 2], [1, 1]),
}


@pytest.mark.parametrize("name", ATEN)
def test_aten_ops_of_backward_graphs(name: str) -> None:
    graph = Graph(1, (_op(_overload(name), Ref(0), *ATEN[name]), _op("operator.getitem", Ref(1), 0)), (Ref(2),))
    assert described_by_meta_tensors(graph)
    for order in (None, (0, 2, 3, 1), (3, 0, 1, 2)):
        _both_say_the_same(graph, [_input((2, 6, 4, 8), order)])


@pytest.mark.parametrize("name", ["index", "index_put"])
def test_indices_in_any_layout(name: str) -> None:
    given = (Ref(2),) if name == "index_put" else ()
    graph = Graph(
        3,
        (_op(f"torch.ops.aten.{name}.{'default' if given else 'Tensor'}", Ref(0), [None, Ref(1)], *given),),
        (Ref(3),),
    )
    assert described_by_meta_tensors(graph)
    for order in (None, (0, 2, 3, 1), (1, 0, 2, 3)):
        _both_say_the_same(graph, [_input((2, 6, 4, 8), order), _input((3,), None, "int64"), _input((2, 3, 4, 8))])


def _overload(name: str) -> str:
    return f"torch.ops.aten.{name}.default"


@given(runnable(in_place=True))
def test_graphs_of_many_ops(graph: Graph) -> None:
    assume(described_by_meta_tensors(graph))
    _both_say_the_same(graph, [_input((SIDE, SIDE), None, "float64")] * graph.inputs)


def test_real_graphs() -> None:
    described = [traced for traced in corpus() if described_by_meta_tensors(traced.graph)]
    assert described
    for traced in described:
        _both_say_the_same(traced.graph, list(traced.inputs))


def test_a_factory_makes_no_real_tensor() -> None:
    on_device = Graph(0, (_op("torch.arange", 5, device=RUN_DEVICE),), (Ref(0),))
    anywhere = Graph(0, (_op("torch.arange", 5),), (Ref(0),))
    assert described_by_meta_tensors(on_device)
    assert not described_by_meta_tensors(anywhere)
    assert propagate(on_device, []) == propagate(anywhere, [])


def test_what_a_device_decides_is_left_to_fake_tensors() -> None:
    name = f"{FUNCTIONAL}group_norm"
    assert not described_by_meta_tensors(Graph(3, (_op(name, Ref(0), Ref(1), Ref(2)),), (Ref(3),)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_fake_tensors_are_asked_of_convolutions_and_attention(dtype: str) -> None:
    back = _op(_overload("convolution_backward"), Ref(2), Ref(0), Ref(1), [8], [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
               [True, True, False])  # fmt: skip
    ops = (
        _op(f"{FUNCTIONAL}conv2d", Ref(0), Ref(1), None, 1, 1),
        back,
        _op("operator.getitem", Ref(3), 0),
        _op(f"{FUNCTIONAL}scaled_dot_product_attention", Ref(0), Ref(0), Ref(4), None, 0.0, is_causal=True),
        _op(f"{FUNCTIONAL}relu", Ref(5)),
    )
    graph = Graph(2, ops, (Ref(6),))
    assert described_by_meta_tensors(graph)
    for order in (None, (0, 2, 3, 1)):
        _both_say_the_same(graph, [_input((2, 8, 6, 4), order, dtype), _input((8, 8, 3, 3), order, dtype)])


def test_an_answer_for_a_number_is_none_for_an_equal_one_of_another_type() -> None:
    inputs = [_input((1, 3, 8, 8)), _input((4, 3, 3, 3))]
    for stride in (2, 2.0):
        graph = Graph(2, (_op(f"{FUNCTIONAL}conv2d", Ref(0), Ref(1), None, stride),), (Ref(2),))
        assert propagate(graph, inputs) == propagate_on_fake(graph, inputs)


def test_fake_tensors_are_asked_of_batch_norm_whose_saved_statistics_are_empty_on_a_cpu() -> None:
    statistics = [_input((8,)) for _ in range(4)]
    name = _overload("_native_batch_norm_legit_no_training")
    parts = (_op("operator.getitem", Ref(5), number) for number in range(3))
    graph = Graph(5, (_op(name, *map(Ref, range(5)), 0.1, 1e-5), *parts), (Ref(6), Ref(7), Ref(8)))
    assert described_by_meta_tensors(graph)
    for order in (None, (0, 2, 3, 1), (3, 1, 0, 2)):
        _both_say_the_same(graph, [_input((2, 8, 5, 6), order, "float16"), *statistics])


def test_a_stride_of_one_element_is_not_taken_from_meta_tensors() -> None:
    ops = (
        _op(f"{FUNCTIONAL}scaled_dot_product_attention", Ref(0), Ref(1), Ref(1)),
        _op(".transpose", Ref(2), 1, 2),
        _op(".reshape", Ref(3), 2, 1, 12),
    )
    graph = Graph(2, ops, (Ref(4),))
    inputs = [_input((2, 3, 1, 4)), _input((2, 3, 5, 4))]
    assert described_by_meta_tensors(graph)
    assert isinstance(propagate_on_meta(graph, inputs), Invalid)
    assert propagate(graph, inputs) == propagate_on_fake(graph, inputs)

"""What counts as the same call, and the same constant."""

import math
import operator

import pytest
import torch
import torch.nn.functional as F
from torch import fx

from passbench.matching.rewrite import apply_pass
from passbench.matching.same_call import same_constant
from tests.passbench.matching.test_rewrite import rewritten, rule


def matches(pattern, function) -> bool:
    return rewritten(function, rule(pattern, lambda *values: values[0] if values else None))[1].total == 1


SAME = [
    (lambda x, w, b: F.layer_norm(x, (4,), w, b, 1e-5), lambda x, w, b: F.layer_norm(x, [4], bias=b, weight=w)),
    (lambda x: F.softmax(x, dim=-1), lambda x: F.softmax(x, -1, _stacklevel=3)),
    (lambda x: torch.softmax(x, -1), lambda x: torch.softmax(input=x, dim=-1)),
    (lambda x: F.relu(x), lambda x: F.relu(x, inplace=False)),
    (lambda x: F.max_pool2d(x, 2), lambda x: F.max_pool2d(x, kernel_size=2, ceil_mode=False, return_indices=False)),
    (lambda x: F.max_pool2d(x, 2, return_indices=True), lambda x: F.max_pool2d(x, 2, None, 0, 1, False, True)),
    (lambda x: F.adaptive_max_pool1d(x, 2), lambda x: F.adaptive_max_pool1d(x, output_size=2)),
    (lambda x, w: F.conv2d(x, w, padding=1), lambda x, w: F.conv2d(x, w, None, 1, (1, 1), 1, 1)),
    (lambda x: x.sum(-1, True), lambda x: x.sum(dim=(-1,), keepdim=True)),
    (lambda x: x.mean(axis=1), lambda x: x.mean(1)),
    (lambda x: x.reshape(2, 6), lambda x: x.reshape((2, 6))),
    (lambda x: x.reshape(2, -1), lambda x: x.reshape(shape=[2, -1])),
    (lambda x: x.new_zeros(2, 3), lambda x: x.new_zeros((2, 3))),
    (lambda x: torch.flatten(x, 1), lambda x: torch.flatten(x, start_dim=1, end_dim=-1)),
    (lambda x: x.contiguous(), lambda x: x.contiguous(memory_format=torch.contiguous_format)),
    (lambda x, y: torch.add(x, y), lambda x, y: torch.add(x, y, alpha=1)),
    (lambda x, y: torch.add(x, y, alpha=2), lambda x, y: torch.add(x, other=y, alpha=2)),
    (lambda x, y: torch.cat([x, y], -1), lambda x, y: torch.cat((x, y), dim=-1)),
    (lambda x: x[..., 1:, None], lambda x: x[..., slice(1, None), None]),
    (lambda x: torch.max(x, 1).values, lambda x: operator.getitem(torch.max(x, dim=1), 0)),
    (lambda x: x.to("cuda"), lambda x: x.to(torch.device("cpu"))),
    (lambda: torch.arange(4, device="cuda"), lambda: torch.arange(4, device=torch.device("cpu"))),
    (lambda x: F.sigmoid(x), lambda x: F.sigmoid(x)),
    (lambda x: abs(x) ** 2, lambda x: pow(abs(x), 2)),
    (lambda x: torch.ops.aten.sum.dim_IntList(x, [1]), lambda x: torch.ops.aten.sum.dim_IntList(x, [1], False)),
    (lambda x, s: x.reshape(s), lambda x: x.reshape((2, 6))),
    (lambda x, a: x.reshape(a, 6), lambda x: x.reshape(2, 6)),
]
DIFFERENT = [
    (lambda x, y: x + y, lambda x, y: operator.iadd(x, y)),
    (lambda x, y: torch.relu(x) + y, lambda x, y: y + torch.relu(x)),
    (lambda x: x - 2, lambda x: 2 - x),
    (lambda x: F.relu(x), lambda x: F.relu(x, inplace=True)),
    (lambda x, y: torch.add(x, y), lambda x, y: torch.add(x, y, alpha=2)),
    (lambda x: x * 1, lambda x: x * 1.0),
    (lambda x: x * 1, lambda x: x * True),
    (lambda x: x * 0.0, lambda x: x * -0.0),
    (lambda x: x.to(torch.float16), lambda x: x.to(torch.bfloat16)),
    (lambda x: x.to(memory_format=torch.channels_last), lambda x: x.to(memory_format=torch.contiguous_format)),
    (lambda x: x[:2], lambda x: x[:3]),
    (lambda x: x[0], lambda x: x[0,]),
    (lambda x: F.softmax(x, dim=1), lambda x: F.softmax(x, dim=-1)),
    (lambda x: F.layer_norm(x, (4,)), lambda x: F.layer_norm(x, (4,), eps=1e-6)),
    (lambda x: x.sum(0), lambda x: x.sum()),
    (lambda x, y: torch.cat([x, y, x]), lambda x, y: torch.cat([x, y])),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SAME)))
def test_the_same_call_written_differently(number):
    one, other = SAME[number]
    for pattern, function in ((one, other), (one, one), (other, other)):
        assert matches(pattern, function)


@pytest.mark.parametrize("number", range(len(DIFFERENT)))
def test_calls_that_differ(number):
    one, other = DIFFERENT[number]
    assert not matches(one, other)
    assert not matches(other, one)


def test_nested_values():
    def f(x, y, z):
        return (torch.cat([x[:, None], torch.stack((y, z))[0]], dim=1),)

    def pattern(a, b, c, start):
        return torch.cat([a[:, start], torch.stack([b, c])[0]], 1)

    assert matches(pattern, f)
    assert matches(lambda x, index: x[index, 0], lambda x: (x[1:, 0],))


def test_parameters_that_take_several_values():
    assert matches(lambda values: torch.cat(values, 0), lambda x, y: (torch.cat([x, y]),))
    assert matches(lambda v: torch.cat(v) + torch.cat(v), lambda x, y: (torch.cat([x, y]) + torch.cat([x, y]),))
    assert not matches(lambda v: torch.cat(v) + torch.cat(v), lambda x, y: (torch.cat([x, y]) + torch.cat([y, x]),))


def test_results_of_several_values():
    def f(x):
        a, b, c = x.split(1)
        values, _ = x.max(1)
        return (a + c, b, values)

    assert not matches(lambda x: x.max(1)[1], f)  # the graph reads the values too

    def split(x):
        a, b, c = x.split(1, dim=0)
        return a + c, b

    assert matches(split, f)
    assert matches(lambda x: x.split(1), f)


def test_an_overload_is_the_method_that_calls_it():
    graph = fx.Graph()
    x = graph.placeholder("x")
    graph.output(graph.call_function(torch.ops.aten.relu.default, (x,)))
    assert apply_pass(graph, [rule(lambda x: x.relu_(), lambda x: x)]).total == 0
    assert apply_pass(graph, [rule(lambda x: x.relu(), lambda x: x)]).total == 1


def test_operands_of_einsum_may_be_a_tuple():
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output(graph.call_function(torch.functional.einsum, ("ij,jk->ik", (x, y))))
    assert apply_pass(graph, [rule(lambda x, y: torch.einsum("ij,jk->ki", (x, y)), lambda x, y: x)]).total == 0
    assert apply_pass(graph, [rule(lambda x, y: torch.einsum("ij,jk->ik", (x, y)), lambda x, y: x)]).total == 1


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        (lambda x, y: torch.meshgrid([x, y], indexing="ij"), 1),
        (lambda x, y: torch.meshgrid(x, y, indexing="ij"), 1),
        (lambda x, y: torch.meshgrid([x, y], indexing="xy"), 0),
        (lambda x, y: torch.meshgrid([x, y]), 0),
    ],
)
def test_tensors_of_meshgrid_may_be_a_list(pattern, matches, alone):
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output(graph.call_function(torch.meshgrid, (x, y) if alone else ([x, y],), {"indexing": "ij"}))
    assert apply_pass(graph, [rule(pattern, lambda x, y: x)]).total == matches


def test_names_that_torch_documents_as_aliases_are_the_same_call():
    assert matches(lambda x: torch.clip(x, 0, 1), lambda x: torch.clamp(x, min=0, max=1))
    assert matches(lambda x: x.clip(0, 1), lambda x: x.clamp(0, 1))
    assert matches(lambda x: torch.special.expit(x), lambda x: torch.sigmoid(x))
    assert matches(lambda x: torch.concat([x, x], dim=1), lambda x: torch.cat([x, x], 1))
    assert matches(lambda x: torch.functional.einsum("ij->ji", x)[..., 0], lambda x: torch.einsum("ij->ji", x)[..., 0])
    assert not matches(lambda x: torch.clip(x, 0, 1), lambda x: torch.clamp(x, 0, 2))
    assert matches(lambda x: torch.clip(x, 0, 1), lambda x: x.clamp(0, 1))


def test_constants():
    assert same_constant(math.nan, math.nan)
    assert same_constant([1, (2, None)], (1, [2, None]))
    assert not same_constant(slice(0, 1), slice(0, True))
    assert not same_constant(torch.float16, "float16")

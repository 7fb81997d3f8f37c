"""What ops do besides computing: the tables against torch itself, and every room's analysis against them."""

import operator

import pytest
import torch
import torch.nn.functional as F

from agent.distill.eager.op_effects import find_effects
from extraction.analysis.propagate import propagate
from passbench.matching.memory_effects import Memory
from storage.graph import effects, targets
from storage.graph.as_fx import to_fx
from storage.graph.record import Graph, Op, Ref
from tests.agent.support import tensor

X, Y, W = Ref(0), Ref(1), Ref(2)
"""The inputs of each graph: a (3, 4) tensor, another, and the square of four."""


def op(target, *args, **kwargs):
    return Op("method" if target.startswith(".") else "function", target.removeprefix("."), args, kwargs)


WRITING = {
    "method": (op(".add_", X, Y), {0}),
    "operator": (op("operator.iadd", X, Y), {0}),
    "assignment": (op("operator.setitem", X, 0, 1.0), {0}),
    "out": (op("torch.add", X, Y, out=Y), {1}),
    "flag": (op("torch.nn.functional.relu", X, inplace=True), {0}),
    "position": (op("torch.nn.functional.relu", X, True), {0}),
    "two steps": (op(".mul_", Y, 2.0), {1}),
}
PLAIN = {
    "add": op("operator.add", X, Y),
    "relu": op("torch.nn.functional.relu", X, False),
    "matmul": op("torch.matmul", X, W),
    "clone": op(".clone", X),
    "cat": op("torch.cat", (X, Y), 1),
    "softmax": op("torch.nn.functional.softmax", X, -1),
}
VIEWS = {
    "transpose": op(".transpose", X, 0, 1),
    "view": op(".view", X, 4, 3),
    "slice": op("operator.getitem", X, slice(0, 2)),
    "contiguous": op(".contiguous", X),
    "identity": op("torch.nn.functional.dropout", X, 0.5, False),
}


def graph_of(one: Op) -> Graph:
    return Graph(3, (one,), (Ref(3),))


INPUTS = (tensor(3, 4), tensor(3, 4), tensor(4, 4))


@pytest.mark.parametrize("name", WRITING)
def test_every_room_finds_the_same_writes(name):
    one, written = WRITING[name]
    assert {ref.index for ref in effects.writes(one)} == written
    graph = graph_of(one)
    found = propagate(graph, INPUTS)
    assert {n for n in range(3) if found.values[n].storage in found.mutated[0]} == written
    known = find_effects(graph, INPUTS)
    assert {n for n in range(3) if known.values[n].storage in known.writes[0]} == written
    nodes = list(to_fx(graph, "cpu").nodes)
    assert {nodes.index(node) for node in Memory(nodes[0].graph).effects_at(nodes[3]).writes} == written


@pytest.mark.parametrize("name", [*PLAIN, *VIEWS])
def test_every_room_agrees_on_what_is_new_memory(name):
    one = (PLAIN | VIEWS)[name]
    new = name in PLAIN
    assert effects.makes_new_memory(one) == new and not effects.writes(one)
    graph = graph_of(one)
    found, known = propagate(graph, INPUTS), find_effects(graph, INPUTS)
    assert (found.values[3].storage not in {found.values[n].storage for n in range(3)}) == new
    assert (known.values[3].storage not in {known.values[n].storage for n in range(3)}) == new
    rewritten = to_fx(graph, "cpu")
    memory, nodes = Memory(rewritten), list(rewritten.nodes)
    assert (memory.of(nodes[3]) not in {memory.of(node) for node in nodes[:3]}) == new


UNARY = """
    relu relu6 gelu silu mish elu selu celu leaky_relu hardswish hardsigmoid hardtanh softplus sigmoid tanh
    exp exp2 expm1 log log1p log2 log10 sqrt rsqrt square reciprocal sin cos tan asin acos atan sinh cosh erf
    erfinv sign floor ceil neg abs clone isnan isinf logical_not tril triu zeros_like ones_like empty_like
    rand_like randn_like sum mean prod var std amax amin argmax argmin logsumexp
""".split()
"""Names of the table that take one tensor."""


@pytest.mark.parametrize("name", UNARY)
def test_what_the_table_says_is_new_memory_is_new_in_torch(name):
    """Also where nothing is to be done: a positive tensor, a single element, a scalar."""
    function = next(getattr(where, name) for where in (torch, F) if hasattr(where, name))
    assert effects.makes_new_memory(op(targets.name_of(function), X))
    for x in (torch.ones(3, 3), torch.ones(2, 1)):
        result = function(x, 0) if name == "logsumexp" else function(x)
        assert result.data_ptr() != x.data_ptr()


def test_an_embedding_writes_where_it_renormalises():
    plain = op("torch.nn.functional.embedding", X, W)
    assert effects.writes(plain) == ()
    for one in (
        op("torch.nn.functional.embedding", X, W, None, 1.0),
        op("torch.nn.functional.embedding", X, weight=W, max_norm=1.0),
        op("torch.nn.functional.embedding_bag", X, W, None, 1.0),
    ):
        assert effects.writes(one) == (W,)
    graph = Graph(2, (op("torch.nn.functional.embedding", Ref(0), Ref(1), None, 1.0),), (Ref(2),))
    nodes = list(to_fx(graph, "cpu").nodes)
    memory = Memory(nodes[0].graph)
    assert memory.effects_at(nodes[2]).writes == (nodes[1],)
    assert memory.of(nodes[2]) not in (memory.of(nodes[0]), memory.of(nodes[1])), "the result is new memory"


def test_operators_of_python_are_known_by_their_names():
    for function in (operator.add, operator.mul, operator.matmul, operator.truediv, operator.neg, operator.and_):
        assert effects.makes_new_memory(op(targets.name_of(function), X, Y))

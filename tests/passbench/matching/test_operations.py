"""Spellings of one operation match each other, and torch says that they are one: it dispatches the same calls."""

import inspect
import itertools
import operator
from types import BuiltinFunctionType, FunctionType

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from storage.graph import targets
from tests.passbench.matching.test_rewrite import rewritten, rule


class _Dispatched(TorchDispatchMode):
    """Notes what torch dispatches: operators, constants, and tensors by the order in which they came up."""

    def __init__(self, inputs) -> None:
        super().__init__()
        self.calls, self._seen = [], list(inputs)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        def noted(value):
            if not isinstance(value, torch.Tensor):
                return repr(value)
            if value.dim() == 0 and all(value is not s for s in self._seen):
                return f"number {value.item()} {value.dtype}"
            if all(value is not s for s in self._seen):
                self._seen.append(value)
            return next(n for n, s in enumerate(self._seen) if s is value)

        self.calls.append((str(function), tree_map(noted, (args, kwargs or {}))))
        result = function(*args, **(kwargs or {}))
        tree_map(noted, result)
        return result


def dispatched(function, *shapes, dtype=torch.float32):
    """What a function of tensors makes torch do, and its results."""
    torch.manual_seed(0)
    inputs = [(torch.randn(shape).abs() * 3 + 0.25).to(dtype) for shape in shapes]
    with _Dispatched(inputs) as mode:
        result = function(*inputs)
    return mode.calls, result


ONE, TWO = ((2, 3, 4),), ((2, 3, 4), (2, 3, 4))
FAMILIES = {
    "add": (TWO, [
        lambda x, y: x + y, lambda x, y: torch.add(x, y), lambda x, y: x.add(y), lambda x, y: operator.add(x, y),
        lambda x, y: torch.Tensor.add(x, y), lambda x, y: torch.add(input=x, other=y, alpha=1),
        lambda x, y: torch.ops.aten.add.Tensor(x, y),
    ]),
    "add a number": (ONE, [
        lambda x: x + 1.5, lambda x: x.add(1.5), lambda x: torch.add(x, 1.5), lambda x: 1.5 + x,
        lambda x: operator.add(1.5, x),
    ]),
    "a number times": (ONE, [lambda x: 1.5 * x, lambda x: x * 1.5, lambda x: x.mul(1.5)]),
    "sub": (TWO, [
        lambda x, y: x - y, lambda x, y: torch.sub(x, y), lambda x, y: x.sub(y), lambda x, y: torch.subtract(x, y),
        lambda x, y: operator.sub(x, y), lambda x, y: torch.Tensor.sub(x, y),
    ]),
    "mul": (TWO, [
        lambda x, y: x * y, lambda x, y: torch.mul(x, y), lambda x, y: x.mul(y), lambda x, y: x.multiply(y),
        lambda x, y: torch.Tensor.mul(x, other=y),
    ]),
    "div": (TWO, [
        lambda x, y: x / y, lambda x, y: torch.div(x, y), lambda x, y: x.div(y), lambda x, y: torch.true_divide(x, y),
        lambda x, y: torch.divide(x, y), lambda x, y: operator.truediv(x, y),
    ]),
    "floor_divide": (TWO, [lambda x, y: x // y, lambda x, y: torch.floor_divide(x, y), lambda x, y: x.floor_divide(y)]),
    "remainder": (TWO, [lambda x, y: x % y, lambda x, y: torch.remainder(x, y), lambda x, y: x.remainder(y)]),
    "matmul": (((3, 4), (4, 5)), [
        lambda x, y: x @ y, lambda x, y: torch.matmul(x, y), lambda x, y: x.matmul(y),
        lambda x, y: operator.matmul(x, y),
    ]),
    "pow": (ONE, [lambda x: x**2, lambda x: pow(x, 2), lambda x: torch.pow(x, 2), lambda x: x.pow(2)]),
    "neg": (ONE, [lambda x: -x, lambda x: torch.neg(x), lambda x: x.neg(), lambda x: torch.negative(x)]),
    "abs": (ONE, [lambda x: abs(x), lambda x: torch.abs(x), lambda x: x.abs(), lambda x: torch.absolute(x)]),
    "gt": (TWO, [lambda x, y: x > y, lambda x, y: torch.gt(x, y), lambda x, y: x.gt(y), lambda x, y: x.greater(y)]),
    "relu": (ONE, [
        lambda x: torch.relu(x), lambda x: F.relu(x), lambda x: x.relu(), lambda x: F.relu(x, inplace=False),
        lambda x: torch.Tensor.relu(x), lambda x: torch.ops.aten.relu.default(x),
    ]),
    "softmax": (ONE, [
        lambda x: F.softmax(x, dim=-1), lambda x: torch.softmax(x, -1), lambda x: x.softmax(dim=-1),
        lambda x: F.softmax(x, -1, _stacklevel=5), lambda x: F.softmax(x, -1, dtype=None),
    ]),
    "softmax of a dtype": (ONE, [
        lambda x: F.softmax(x, dim=-1, dtype=torch.float64), lambda x: torch.softmax(x, -1, dtype=torch.float64),
        lambda x: x.softmax(-1, torch.float64),
    ]),
    "log_softmax": (ONE, [
        lambda x: F.log_softmax(x, 1), lambda x: torch.log_softmax(x, 1), lambda x: x.log_softmax(1),
    ]),
    "sigmoid": (ONE, [
        lambda x: torch.sigmoid(x), lambda x: F.sigmoid(x), lambda x: x.sigmoid(), lambda x: torch.special.expit(x),
    ]),
    "tanh": (ONE, [lambda x: torch.tanh(x), lambda x: F.tanh(x), lambda x: x.tanh()]),
    "silu": (ONE, [lambda x: F.silu(x), lambda x: F.silu(x, False), lambda x: torch.ops.aten.silu.default(x)]),
    "layer_norm": (((2, 4), (4,), (4,)), [
        lambda x, w, b: F.layer_norm(x, (4,), w, b), lambda x, w, b: torch.layer_norm(x, [4], w, b, 1e-5),
    ]),
    "cat": (TWO, [
        lambda x, y: torch.cat([x, y], 1), lambda x, y: torch.cat((x, y), dim=1), lambda x, y: torch.concat([x, y], 1),
    ]),
    "mean": (ONE, [
        lambda x: x.mean(-1, True), lambda x: torch.mean(x, dim=(-1,), keepdim=True),
        lambda x: x.mean(axis=-1, keepdims=True),
    ]),
    "reshape": (ONE, [lambda x: x.reshape(6, 4), lambda x: torch.reshape(x, (6, 4)), lambda x: x.reshape((6, 4))]),
    "transpose": (ONE, [
        lambda x: x.transpose(-1, -2), lambda x: torch.transpose(x, -2, -1), lambda x: x.swapaxes(-2, -1),
        lambda x: x.mT,
    ]),
    "permute": (ONE, [
        lambda x: x.permute(0, 2, 1), lambda x: torch.permute(x, (0, 2, 1)), lambda x: x.permute(0, -1, 1),
        lambda x: x.permute(dims=[0, 2, -2]),
    ]),
    "cast": (ONE, [
        lambda x: x.to(torch.float16), lambda x: x.half(), lambda x: x.to(dtype=torch.float16),
        lambda x: torch.Tensor.to(x, torch.float16),
    ]),
    "where": (TWO, [
        lambda x, y: torch.where(x > y, x, y), lambda x, y: x.where(x > y, y),
        lambda x, y: x.where(condition=x.gt(y), other=y),
    ]),
    "split": (ONE, [
        lambda x: torch.split(x, 2, 2)[0], lambda x: x.split(2, dim=2)[0], lambda x: x.split(split_size=2, dim=2)[0],
    ]),
    "norm": (ONE, [
        lambda x: torch.norm(x, 2, -1), lambda x: torch.functional.norm(x, p=2, dim=-1), lambda x: x.norm(2, dim=-1),
    ]),
    "einsum": (TWO, [
        lambda x, y: torch.einsum("abc,abc->ab", x, y), lambda x, y: torch.functional.einsum("abc,abc->ab", x, y),
    ]),
    "indexing": (ONE, [lambda x: x[..., 1:], lambda x: operator.getitem(x, (Ellipsis, slice(1, None, None)))]),
    "in place": (TWO, [
        lambda x, y: operator.iadd(x, y), lambda x, y: x.add_(y), lambda x, y: torch.Tensor.add_(x, y),
    ]),
    "relu in place": (ONE, [lambda x: F.relu(x, inplace=True), lambda x: x.relu_(), lambda x: torch.relu_(x)]),
}  # fmt: skip


def matches(pattern, function) -> bool:
    return rewritten(function, rule(pattern, lambda *values: values[0]))[1].total > 0


def assert_same_calls(one, other, shapes):
    (calls, result), (others, again) = dispatched(one, *shapes), dispatched(other, *shapes)
    assert calls == others
    assert torch.equal(result, again) and result.stride() == again.stride()


@pytest.mark.parametrize("name", FAMILIES)
def test_spellings_of_one_operation_match_each_other(name):
    shapes, family = FAMILIES[name]
    for one, other in itertools.permutations(family, 2):
        assert matches(one, other)
        if name not in ("permute", "transpose"):  # the dimensions are counted differently
            assert_same_calls(one, other, shapes)


_WRITERS = ("in place", "relu in place")


def test_operations_of_different_meaning_do_not_match():
    """Each matches itself alone in a graph of all with as many inputs, and none in one that writes an input."""
    writers = [
        *(FAMILIES[name][1][0] for name in _WRITERS), lambda x, y: torch.add(x, y, out=x), lambda x, y: x.sub_(y),
    ]  # fmt: skip
    apart = [
        *(family[0] for name, (_, family) in FAMILIES.items() if name not in ("gt", *_WRITERS)),  # gt: in where
        lambda x: x.view(6, 4), lambda x: x.flatten(0, 1), lambda x: x.t(), lambda x: x.transpose(0, 1),
        lambda x: x.permute(0, 2, -2, 3), lambda x: F.softmax(x), lambda x: x.float(), lambda x: x.double(),
        lambda x, y: torch.div(x, y, rounding_mode="floor"), lambda x, y: torch.div(x, y, rounding_mode="trunc"),
        lambda x, y: torch.fmod(x, y), lambda x, y: y.add(x, alpha=3), lambda x, y: torch.add(x, y, alpha=2),
        lambda x: 1.5 - x, lambda x: x + 1, lambda x: x**2.0, lambda x: 2**x, lambda x: torch.pow(2, x),
        lambda x, y: torch.mm(x, y), lambda x: x[:, 1:],
        lambda x: x.sum(-1, True), lambda x: x.mean(-1), lambda x: torch.norm(x, 1, -1), lambda x: x.norm(),
        lambda x, y: y.where(x > y, x), lambda x: x.split([2, 2], 2)[0], lambda x: F.relu6(x), lambda x: F.gelu(x),
        lambda x: F.gelu(x, approximate="tanh"), lambda x: F.leaky_relu(x), lambda x, y: torch.bmm(x, y),
        lambda x: x.to(torch.bfloat16), lambda x: x.to(torch.float16, copy=True), lambda x: x.unfold(0, 1, 1),
        lambda x: F.unfold(x, 1),
    ]  # fmt: skip
    by_count = {n: [function for function in apart if function.__code__.co_argcount == n] for n in (1, 2, 3)}
    graphs = {
        1: lambda x: tuple(f(x) for f in by_count[1]),
        2: lambda x, y: tuple(f(x, y) for f in by_count[2]),
        3: lambda x, y, z: tuple(f(x, y, z) for f in by_count[3]),
    }
    for count, functions in by_count.items():
        for one in functions:
            applied = rewritten(graphs[count], rule(one, lambda *values: values[0]))[1]
            assert applied.total == 1, inspect.getsource(one).strip()
    for writer in writers:
        for other in [*by_count[writer.__code__.co_argcount], *writers]:
            if other is not writer and other.__code__.co_argcount == writer.__code__.co_argcount:
                assert not matches(writer, other), inspect.getsource(other).strip()
                assert not matches(other, writer), inspect.getsource(other).strip()


def test_operators_of_sizes_are_none_of_tensors():
    def sizes(x):
        return (x.new_zeros(x.shape[0] * 2), x.new_ones(x.size(1) * 2))

    assert not matches(lambda n: torch.mul(n, 2), sizes)
    assert matches(lambda n: n * 2, sizes)


def functions_and_methods():
    for name in sorted(targets.methods()):
        if isinstance(getattr(torch, name, None), BuiltinFunctionType):
            yield name, getattr(torch, name), getattr(torch.Tensor, name)


def functionals_and_overloads():
    for name in sorted(dir(F)):
        packet = getattr(torch.ops.aten, name, None)
        if isinstance(getattr(F, name), FunctionType) and "default" in (packet.overloads() if packet else ()):
            yield name, getattr(F, name), packet.default


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("pairs", "least"), [(functions_and_methods, 170), (functionals_and_overloads, 10)])
def test_what_the_matcher_takes_for_the_same_is_the_same_to_torch(pairs, least):
    tried = 0
    for (name, function, other), shapes in itertools.product(pairs(), (ONE, TWO)):
        names = ["x", "y"][: len(shapes)]
        one = eval(f"lambda {', '.join(names)}: f({', '.join(names)})", {"f": function})
        written = (
            f"f({', '.join(names)})" if pairs is functionals_and_overloads else f"x.{name}({', '.join(names[1:])})"
        )
        two = eval(f"lambda {', '.join(names)}: {written}", {"f": other})
        try:
            (expected, result), (calls, _) = dispatched(function, *shapes), dispatched(other, *shapes)
        except (TypeError, RuntimeError, IndexError, ValueError):
            continue  # it takes other arguments
        if isinstance(result, torch.Tensor) and matches(one, two):
            assert calls == expected, name
            tried += 1
    assert tried >= least, tried


PROGRAM = ["add", "sub", "mul", "div", "relu", "sigmoid", "tanh", "neg", "abs", "softmax", "cast", "remainder"]


@given(st.lists(st.tuples(st.sampled_from(PROGRAM), st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=8))
def test_a_program_matches_itself_in_other_words(steps):
    def spelled(which):
        def function(x, y):
            for step in steps:
                shapes, family = FAMILIES[step[0]]
                family = [f for f in family if "Tensor" not in f.__code__.co_names]  # known in a pattern's own text
                operation = family[step[which] % len(family)]
                x = operation(x, y) if len(shapes) == 2 else operation(x)
            return x

        return function

    names = [name for name, *_ in steps]
    if not {"add", "sub", "mul", "div", "remainder"} & set(names):
        steps.append(("add", 0, 1))
    assert matches(spelled(1), spelled(2))

"""The parser of model.py: what fx prints becomes the graph that it computes, anything else a clear error."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given

from storage.graph import targets
from storage.graph.as_fx import to_module
from storage.graph.record import RUN_DEVICE, Graph, Op, Ref
from storage.graph.render import render
from storage.layout.errors import LayoutError
from storage.layout.forward import read_forward
from storage.layout.graph_source import MAX_VALUE, graph_of
from storage.layout.names import callable_name
from tests.support.graphs import corpus, runnable
from tests.support.layout_sources import SOURCES, module


def parsed(source: str) -> Graph:
    return graph_of(read_forward(source, "model.py"))


def _ops(*lines: str, signature: str = "x") -> list[Op]:
    return list(parsed(module(signature, *lines, "return x")).ops)


def _flat(value: object) -> Iterator[object]:
    if isinstance(value, tuple | list):
        yield from itertools.chain.from_iterable(map(_flat, value))
    elif isinstance(value, dict):
        yield from _flat(list(value.values()))
    else:
        yield value


@pytest.mark.parametrize("name", SOURCES)
def test_the_graph_computes_what_the_source_computes(name: str) -> None:
    source, inputs = SOURCES[name]
    namespace: dict = {}
    exec(compile(source, "model.py", "exec"), namespace)  # a source of this test's own
    with torch.no_grad():
        expected = namespace["GraphModule"]().forward(*(t.clone() for t in inputs))
        given = to_module(parsed(source), "cpu").forward(*(t.clone() for t in inputs))
    pairs = list(zip(_flat(given), _flat(expected), strict=True))
    assert pairs
    for one, other in pairs:
        assert one is None is other or (
            one.dtype == other.dtype and torch.equal(one.nan_to_num(7), other.nan_to_num(7))
        )
        assert other is None or one.stride() == other.stride()


@given(runnable(in_place=True))
def test_what_is_rendered_is_read_as_the_same_graph(graph: Graph) -> None:
    assert parsed(render(graph)) == graph


def test_real_graphs_are_read_as_rendered() -> None:
    for traced in corpus():
        assert parsed(render(traced.graph)) == traced.graph


def test_an_augmented_assignment_keeps_the_wiring_that_fx_means() -> None:
    (_, add, mul) = _ops("y = x.relu()", "y += x;  iadd = y;  x = None", "z = y * iadd", "x = z")
    assert add == Op("function", "operator.iadd", (Ref(1), Ref(0)), {})
    assert mul.args == (Ref(1), Ref(2))  # a tensor is the same object under both names
    (_, _, mul) = _ops("y = x.relu()", "y += x", "z = y * y")
    assert mul.args == (Ref(2), Ref(2))
    ops = _ops("n = x.size(0)", "n += 1;  iadd = n", "z = x.view(n, iadd)")
    assert ops[-1].args == (Ref(0), Ref(2), Ref(2))  # a number is not


def test_integers_that_are_arguments_become_constants() -> None:
    forward = read_forward(module("s0 : torch.SymInt, x : torch.Tensor", "y = x.view(s0, s0 // 2)", "return y"), "m")
    assert [a.kind for a in forward.arguments] == ["integer", "tensor"]
    graph = graph_of(forward, {"s0": 4})
    assert graph.inputs == 1
    assert [op.args for op in graph.ops] == [(4, 2), (Ref(0), 4, Ref(1))]


@pytest.mark.parametrize(
    "line",
    [
        "y = torch.zeros(2, device = device(type='cuda', index=0))",
        "y = torch.zeros(2, device = torch.device('cuda:1'))",
        "y = torch.zeros(2, device = 'cpu')",
    ],
)
def test_devices_become_the_device_of_the_run(line: str) -> None:
    assert _ops(line)[0].kwargs == {"device": RUN_DEVICE}


def test_a_device_of_to() -> None:
    assert _ops("y = x.to('cuda')")[0].args == (Ref(0), RUN_DEVICE)
    assert _ops("y = x.to(device(type='cuda'))")[0].args == (Ref(0), RUN_DEVICE)


def test_names_of_functions_are_those_of_the_allowlist() -> None:
    from torch.fx.node import _get_qualified_name

    for function in targets.functions().values():
        name = _get_qualified_name(function)
        assert callable_name(name if "." in name else f"builtins.{name}") == targets.name_of(function)
    names = {callable_name(n) for n in ("torch._C._nn.gelu", "torch.nn.functional.gelu")}
    assert names == {"torch.nn.functional.gelu"}
    assert callable_name("_operator_contains") == "operator.contains"
    assert callable_name("math_sqrt") == "math.sqrt"


def test_the_forms_of_a_file() -> None:
    graph = Graph(1, (Op("method", "relu", (Ref(0),), {}),), Ref(1))
    function = "def forward(self, x : torch.Tensor):\n    y = x.relu();  x = None\n    return y\n"
    assert parsed(f"\n\n\n{function}") == graph  # as GraphModule.code has it
    init = "    def __init__(self):\n        super().__init__()\n"
    method = "".join(f"    {line}\n" for line in function.splitlines())
    assert parsed(f'"""Text."""\nfrom torch import nn\nclass M(nn.Module):\n    "Text."\n{init}{method}') == graph
    readable = '    def forward(self, x: "f32[1]"):\n        y: "f32[1]" = x.relu();  x = None\n        return y\n'
    assert parsed(f"class M(torch.nn.Module):\n{readable}") == graph  # as print_readable does


REFUSED = {
    "for i in range(3): x = x + 1": (7, "a loop is not straight-line code"),
    "while True: pass": (7, "a loop is not straight-line code"),
    "if x: y = x": (7, "a branch is not straight-line code"),
    "with torch.no_grad(): y = x": (7, "a with block is not straight-line code"),
    "try: pass\n        except: pass": (7, "a try block is not straight-line code"),
    "def f(): pass": (7, "a function definition is not straight-line code"),
    "import os": (7, "an import is not straight-line code"),
    "global x": (7, "a global statement is not straight-line code"),
    "raise x": (7, "a raise statement is not straight-line code"),
    "assert x": (7, "an assertion is not straight-line code"),
    "y = lambda: x": (7, "a lambda is not straight-line code"),
    "y = [i for i in x]": (7, "a comprehension is not straight-line code"),
    "y = f'{x}'": (7, "an f-string is not straight-line code"),
    "y = x if x else x": (7, "a conditional expression is not straight-line code"),
    "y = x and x": (7, "a boolean `and` or `or` is not straight-line code"),
    "y = (z := x)": (7, "an assignment inside an expression is not straight-line code"),
    "y = {x}": (7, "a set is not straight-line code"),
    "y = torch.cat([*x])": (7, "a starred expression is not straight-line code"),
    "y = torch.relu(**x)": (7, "with ** does not say what it is given"),
    "y = 0 < x < 1": (7, "of several, or with `not in`, is not one operation"),
    "y = x.relu()()": (7, "a call cannot be called"),
    "x.data = x": (7, "an attribute cannot be assigned to here"),
    "y = b'1'": (7, "of bytes is not a value of a graph"),
    "y = z": (7, "'z' is neither a value of this graph nor a constant of torch"),
    "y = torch.os": (7, "'torch.os' is neither a value"),
    "y = torch.os.system('true')": (7, "'torch.os.system' is not in the allowlist"),
    "y = __import__('os').system('true')": (7, "'__import__' is not in the allowlist"),
    "y = eval('1')": (7, "'eval' is not in the allowlist"),
    "y = torch.load('f')": (7, "'torch.load' is not in the allowlist"),
    "y = torch.ops.aten.from_file.default('f')": (7, "is not in the allowlist"),
    "y = x.__class__": (7, "reads attribute"),
    "y = x.__class__.__base__": (7, "reads attribute"),
    "y = x.__reduce__()": (7, "tensor method '__reduce__' is not in the allowlist"),
    "y = x.numpy()": (7, "tensor method 'numpy' is not in the allowlist"),
    "y = 'a'.format(x)": (7, "tensor method 'format' is not in the allowlist"),
    "y = self.weight": (7, "'self.weight' is neither a value"),
    "return x": (8, "stands behind the return"),
    f"y = {'(' * 250}x{')' * 250}": (7, "this is not Python: too many nested parentheses"),
    f"y = {'-' * 150}x": (7, "nested deeper than"),
    f"y = x{'.T' * 150}": (7, "nested deeper than"),
    f"y = {'[' * 40}x{']' * 40};  z = torch.cat(y)": (7, "nests values deeper"),
    f"y = 0x{'f' * 99}": (7, "a number has more than 128 bits"),
    f"y = '{'f' * 10_001}'": (7, "a string is too long"),
    "y = '\\ud800'": (7, "no text"),
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_is_outside_of_the_grammar_says_where_and_what(line: str) -> None:
    number, what = REFUSED[line]
    with pytest.raises(LayoutError) as raised:
        parsed(module("x", line, "return x"))
    message = str(raised.value)
    assert what in message and "\n" not in message and len(message) < 300
    assert message.startswith(f"model.py:{number}: " if number else "model.py:")


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("", "0 classes in place of one with a `forward`"),
        ("import os\ndef forward(self): return 1\n", "model.py:1: an import of 'os' has no place in a graph"),
        ("from torch import *\ndef forward(self): return 1\n", "model.py:1: an import of everything (*)"),
        ("from . import x\ndef forward(self): return 1\n", "model.py:1: an import of 'a package of its own'"),
        ("print(1)\ndef forward(self): return 1\n", "model.py:1: an expression stands outside of the class"),
        ("x = 1\ndef forward(self): return 1\n", "model.py:1: an assignment stands outside of the class"),
        ("class A:\n    pass\n", "model.py:1: a class has another base than torch.nn.Module"),
        ("@a\nclass A(torch.nn.Module):\n    pass\n", "a class has a decorator"),
        ("class A(torch.nn.Module):\n    x = open('f')\n", "model.py:2: an assignment stands in the class"),
        ("class A(torch.nn.Module):\n    pass\n", "model.py:1: the class has 0 `forward`s"),
        ("class A(torch.nn.Module, metaclass=B):\n    pass\n", "a class has another base"),
        ("def forward(self, x=open('f')): return x\n", "starred, keyword-only or default arguments"),
        ("def forward(self, *x): return x\n", "starred, keyword-only or default arguments"),
        ("def forward(x): return x\n", "does not take `self` first"),
        ("@open('f')\ndef forward(self): return 1\n", "has a decorator"),
        ("def forward(self, x: float): return x\n", "'x' is a float, not a tensor"),
        ("def forward(self, x): x = x\n", "`forward` has no return"),
        ("def forward(self, x): return x\nclass A: pass\n", "model.py:2: 2 classes in place of one"),
        ("def forward(self\n", "model.py:1: this is not Python: '(' was never closed"),
        ("def forward(self): return '\0'\n", "this is not Python"),
    ],
)
def test_what_is_no_model_says_where_and_what(source: str, what: str) -> None:
    with pytest.raises(LayoutError) as raised:
        parsed(source)
    assert what in str(raised.value)


def test_what_is_small_to_write_and_large_to_hold_is_refused() -> None:
    lines = ["y = (x, x)", *["y = (y, y)"] * 40, "z = torch.cat(y)"]
    with pytest.raises(LayoutError, match=rf"a value of more than {MAX_VALUE} items"):
        _ops(*lines)
    lines = [f"y = ({'x, ' * 10_000})", *["z = torch.cat(y)"] * 101]
    with pytest.raises(LayoutError, match="arguments of more than"):
        _ops(*lines)

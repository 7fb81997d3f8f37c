"""Integers that follow the sizes of a model's inputs: expressions in named symbols, and a graph at a point of them.

An expression is text in Python's syntax: whole numbers, names, `+ - * // % / **`, `min`, `max`, `abs`, `int` and
`float`. It is parsed, never executed; what it may cost is bounded, since it can come from a file of anyone.
"""

import ast
import functools
import operator
from collections.abc import Callable, Mapping

from storage.graph.record import Graph, GraphError, Op, Sym, Value

Number = int | float

MAX_LENGTH = 1000
"""Most characters that an expression may have."""
MAX_SIZE = 1 << 62
"""Largest magnitude that a value may have while an expression is computed."""

_BINARY: dict[type, Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable[..., Number]] = {"min": min, "max": max, "abs": abs, "int": int, "float": float}


def evaluate(expression: str, sizes: Mapping[str, int]) -> Number:
    """The value of an expression where the symbols have these sizes.

    Raises GraphError if it is not an expression, names an unknown symbol, or has no value there.
    """
    try:
        return _evaluate(_parsed(expression), sizes)
    except (ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise GraphError(f"the expression {expression[:80]!r} has no value at {dict(sizes)}: {error}") from None


def size(expression: str, sizes: Mapping[str, int]) -> int:
    """The value of an expression that must be a whole number, such as a dimension. Raises GraphError as `evaluate`."""
    value = evaluate(expression, sizes)
    if not isinstance(value, int):
        raise GraphError(f"the expression {expression[:80]!r} is {value} at {dict(sizes)}, not a whole number")
    return value


def names(expression: str) -> frozenset[str]:
    """The symbols in an expression. Raises GraphError if it is none."""
    return frozenset(n.id for n in ast.walk(_parsed(expression)) if isinstance(n, ast.Name)) - _FUNCTIONS.keys()


def at(graph: Graph, sizes: Mapping[str, int]) -> Graph:
    """The graph with numbers in place of expressions. Raises GraphError as `evaluate`."""
    ops = []
    for op in graph.ops:
        args, kwargs = _at(op.args, sizes), _at(op.kwargs, sizes)
        ops.append(op if args is op.args and kwargs is op.kwargs else Op(op.kind, op.target, args, kwargs))
    return Graph(graph.inputs, tuple(ops), _at(graph.output, sizes))


def symbols_of(graph: Graph) -> frozenset[str]:
    """The symbols that the constants of a graph name."""
    found: set[str] = set()

    def look(value: Value) -> None:
        if isinstance(value, Sym):
            found.update(names(value.expression))
        elif isinstance(value, tuple | list):
            for item in value:
                look(item)
        elif isinstance(value, dict):
            look(list(value.values()))
        elif isinstance(value, slice):
            look((value.start, value.stop, value.step))

    for op in graph.ops:
        look((op.args, op.kwargs))
    look(graph.output)
    return frozenset(found)


def _at(value: Value, sizes: Mapping[str, int]) -> Value:
    """`value` itself where nothing in it is symbolic."""
    if isinstance(value, Sym):
        return evaluate(value.expression, sizes)
    if isinstance(value, tuple | list):
        items = [_at(item, sizes) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else type(value)(items)
    if isinstance(value, dict):
        items = {key: _at(item, sizes) for key, item in value.items()}
        return value if all(items[key] is value[key] for key in value) else items
    if isinstance(value, slice):
        old = (value.start, value.stop, value.step)
        new = tuple(_at(item, sizes) for item in old)
        return value if all(a is b for a, b in zip(new, old, strict=True)) else slice(*new)
    return value


@functools.lru_cache(maxsize=65_536)
def _parsed(expression: str) -> ast.expr:
    if len(expression) > MAX_LENGTH:
        raise GraphError(f"an expression of {len(expression)} characters is too long")
    try:
        tree = ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise GraphError(f"{expression[:80]!r} is not an expression of sizes") from None
    for node in ast.walk(tree):
        if not _is_allowed(node):
            raise GraphError(f"{expression[:80]!r} is not an expression of sizes: it has a {type(node).__name__}")
    return tree


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return type(node.value) in (int, float) and abs(node.value) <= MAX_SIZE
    if isinstance(node, ast.BinOp):
        return type(node.op) in _BINARY
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS and bool(node.args) and not node.keywords
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.USub)
    return isinstance(node, (ast.Name, ast.Load, ast.USub, *_BINARY))


def _evaluate(node: ast.expr, sizes: Mapping[str, int]) -> Number:
    if isinstance(node, ast.Constant):
        value = node.value
    elif isinstance(node, ast.Name):
        if node.id not in sizes:
            raise ValueError(f"no size is given for {node.id}")
        value = sizes[node.id]
    elif isinstance(node, ast.UnaryOp):
        value = -_evaluate(node.operand, sizes)
    elif isinstance(node, ast.Call):
        value = _FUNCTIONS[node.func.id](*(_evaluate(each, sizes) for each in node.args))
    else:
        left, right = _evaluate(node.left, sizes), _evaluate(node.right, sizes)
        if isinstance(node.op, ast.Pow) and abs(right) > 8:
            raise ValueError(f"a power of {right}")
        value = _BINARY[type(node.op)](left, right)
    if isinstance(value, complex) or abs(value) > MAX_SIZE:
        raise ValueError("a value is not a size")
    return value

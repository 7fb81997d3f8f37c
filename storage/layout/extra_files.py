"""The two files beside graph and inputs: input_tensor_constraints.py (sizes in symbols) and graph_net.json (metadata).

The constraints are assignments of literals in the form of GraphNet: `S0 = Symbol("S0")`, then
`dynamic_dim_constraint_symbols`, `…_symbol2example_value`, `…_relations` and `…_input_shapes`, a list of
`([S0, 3], "name")`. Relations between symbols are checked for their form alone: a record has no place for them.
"""

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from storage.errors import PassNetError
from storage.graph.symbols import MAX_SIZE, evaluate, names
from storage.layout.errors import LayoutError, short
from storage.layout.syntax import dotted, line_of, outside, parse

PREFIX = "dynamic_dim_constraint_"
FRAMEWORK = "torch"
MAX_JSON = 1 << 20
MAX_SYMBOLS = 1000


@dataclass(frozen=True)
class Constraints:
    """`sizes` are the symbols with the values of this graph; `shapes` are expressions, one a dimension, by input."""

    sizes: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def of(self, name: str, shape: tuple[int, ...]) -> tuple[str, ...] | None:
        """The expressions of an input, if they give this shape at `sizes`; else None."""
        expressions = self.shapes.get(name)
        if expressions is None or len(expressions) != len(shape):
            return None
        try:
            return expressions if tuple(evaluate(e, self.sizes) for e in expressions) == shape else None
        except PassNetError:  # an expression without a value there
            return None


def read_constraints(text: str, file: str) -> Constraints:
    """The symbols and symbolic shapes of an input_tensor_constraints.py. Raises LayoutError; executes nothing."""
    symbols: set[str] = set()
    found: dict[str, ast.expr] = {}
    for statement in parse(text, file).body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.ImportFrom) and statement.module == "sympy" and not statement.level:
            continue
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if not isinstance(target, ast.Name):
            raise outside(statement, file, "stands in place of a constraint")
        if target.id.startswith(PREFIX):
            found[target.id.removeprefix(PREFIX)] = statement.value
        elif _is_symbol(statement.value, target.id):
            symbols.add(target.id)
        else:
            raise outside(statement.value, file, f"defines {short(target.id)}, which is no symbol")
    if len(symbols) > MAX_SYMBOLS:
        raise LayoutError("too large", f"{len(symbols)} symbols are more than {MAX_SYMBOLS}", file)
    return Constraints(_sizes(found, symbols, file), _shapes(found.get("input_shapes"), symbols, file))


def _is_symbol(value: ast.expr, name: str) -> bool:
    if not isinstance(value, ast.Call) or dotted(value.func) != "Symbol" or len(value.args) != 1:
        return False
    return isinstance(value.args[0], ast.Constant) and value.args[0].value == name


def _sizes(found: Mapping[str, ast.expr], symbols: set[str], file: str) -> dict[str, int]:
    node = found.get("symbol2example_value")
    if node is None:
        return {}
    sizes: dict[str, int] = {}
    keys, values = (node.keys, node.values) if isinstance(node, ast.Dict) else ([None], [node])
    for key, value in zip(keys, values, strict=True):
        size = value.value if isinstance(value, ast.Constant) else None
        if not isinstance(key, ast.Name) or key.id not in symbols or type(size) is not int or not 0 <= size <= MAX_SIZE:
            raise outside(value, file, "is no example of a symbol and its size")
        sizes[key.id] = size
    return sizes


def _shapes(node: ast.expr | None, symbols: set[str], file: str) -> dict[str, tuple[str, ...]]:
    if node is None:
        return {}
    shapes: dict[str, tuple[str, ...]] = {}
    for item in node.elts if isinstance(node, ast.List | ast.Tuple) else [node]:
        pair = item.elts if isinstance(item, ast.Tuple) and len(item.elts) == 2 else [None, None]
        name = pair[1].value if isinstance(pair[1], ast.Constant) else None
        if not isinstance(pair[0], ast.List | ast.Tuple) or not isinstance(name, str):
            raise outside(item, file, "is no shape and the name of its input")
        shapes[name] = tuple(_expression(each, symbols, file) for each in pair[0].elts)
    return shapes


def _expression(node: ast.expr, symbols: set[str], file: str) -> str:
    text = ast.unparse(node)
    try:
        unknown = names(text) - symbols
    except PassNetError as error:
        raise LayoutError("metadata", str(error), file, line_of(node)) from None
    if unknown:
        raise LayoutError("metadata", f"no symbol {short(min(unknown))} is defined", file, line_of(node))
    return text


def read_metadata(text: str, file: str) -> dict[str, Any]:
    """The object in a graph_net.json. Raises LayoutError if it is none, or describes a graph of another framework."""
    if len(text) > MAX_JSON:
        raise LayoutError("too large", f"{len(text)} characters are more than {MAX_JSON}", file)
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LayoutError("syntax", f"this is not JSON: {str(error)[:80]}", file) from None
    if not isinstance(data, dict):
        raise LayoutError("metadata", "this is not a JSON object", file)
    framework = data.get("framework", FRAMEWORK)
    if framework != FRAMEWORK:
        raise LayoutError("framework", f"the graph is one of {short(framework)}, not of {FRAMEWORK}", file)
    return data

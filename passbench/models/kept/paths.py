"""The expressions by which dynamo names what it read, as data: `L['model'].config`, `G['__import_torch'].nn`.

They come back from a file that anybody may have written, so they are walked step by step, never run: attributes, items,
types and the modules that are there already.
"""

import ast
import sys
from collections.abc import Mapping, Sequence
from typing import Any

ABSENT = type("Absent", (), {"__repr__": lambda self: "absent"})()
"""The value of what cannot be reached: dynamo also notes that an attribute is not there."""

Step = list
"""[kind, base, argument]; `base` is the number of an earlier step."""


class UnknownPath(ValueError):
    """An expression that has something else in it."""


class PathTable:
    """Steps of many expressions, those that they have in common once. `modules`: the modules behind names of `G`, and
    those whose dictionaries are behind others, by names that end in "()"."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self.steps: list[Step] = []
        self._modules = modules
        self._numbers: dict[str, int] = {}

    def add(self, expression: str) -> int:
        """The number of the step at which the expression's value is. Raises UnknownPath."""
        try:
            return self._of(ast.parse(expression, mode="eval").body)
        except (SyntaxError, RecursionError) as error:
            raise UnknownPath(expression) from error

    def add_module(self, name: str, attributes: Sequence[str]) -> int:
        """The number of the step at which an attribute of a module is, or one of its attributes in turn."""
        number = self._step("module", -1, name)
        for each in attributes:
            number = self._step("attribute", number, each)
        return number

    def _of(self, node: ast.expr) -> int:
        match node:
            case ast.Subscript(ast.Name("L"), ast.Constant(("model" | "args" | "kwargs") as name)):
                return self._step("root", -1, name)
            case ast.Subscript(ast.Name("G"), ast.Constant(str(name))) if name in self._modules:
                found = self._modules[name]
                return self._step("names" if found.endswith("()") else "module", -1, found.removesuffix("()"))
            case ast.Subscript(base, ast.Constant(key)) if type(key) in (str, int, bool):
                return self._step("item", self._of(base), key)
            case ast.Attribute(base, name):
                return self._step("attribute", self._of(base), name)
            case ast.Call(ast.Name("type"), [base], []):
                return self._step("type", self._of(base), None)
            case ast.Call(ast.Name("dict"), [ast.Attribute(_, "__dict__") as base], []):
                return self._of(base)
            case ast.Call(ast.Name("getattr"), [base, ast.Constant(str(name))], []):
                return self._step("attribute", self._of(base), name)
            case ast.Call(ast.Name("list"), [ast.Call(ast.Attribute(ast.Name("dict"), "keys"), [base], [])], []):
                return self._step("keys", self._of(base), None)
            case ast.Call(ast.Attribute(ast.Name("dict"), "__getitem__"), [base, key], []):
                return self._step("value", self._of(base), self._of(key))
            case ast.Call(ast.Attribute(ast.Name("object"), "__getattribute__"), [base, ast.Constant(str(name))], []):
                return self._step("own", self._of(base), name)
        raise UnknownPath(ast.unparse(node))

    def _step(self, kind: str, base: int, argument: Any) -> int:
        step = [kind, base, argument]
        said = repr(step)
        if said not in self._numbers:
            self._numbers[said] = len(self.steps)
            self.steps.append(step)
        return self._numbers[said]


def walk(steps: Sequence[Step], roots: Mapping[str, Any]) -> list[Any]:
    """The values of all steps, `ABSENT` where one cannot be reached. Nothing is imported. Raises UnknownPath on steps
    that are no steps."""
    values: list[Any] = []
    for step in steps:
        try:
            kind, base, argument = step
            before = values[base] if base >= 0 else None
            values.append(ABSENT if before is ABSENT else _taken(kind, before, argument, values, roots))
        except (TypeError, ValueError, IndexError) as error:
            raise UnknownPath(str(step)) from error
    return values


def _taken(kind: str, base: Any, argument: Any, values: Sequence[Any], roots: Mapping[str, Any]) -> Any:
    try:
        match kind:
            case "root":
                return roots[argument]
            case "module":
                return sys.modules[argument]
            case "names":
                return vars(sys.modules[argument])
            case "item":
                return base[argument]
            case "attribute":
                return getattr(base, argument)
            case "type":
                return type(base)
            case "keys":
                return list(dict.keys(base))
            case "value":
                return dict.__getitem__(base, values[argument])
            case "own":
                return object.__getattribute__(base, argument)
    except (AttributeError, KeyError, IndexError, TypeError, RuntimeError):
        return ABSENT
    raise UnknownPath(kind)

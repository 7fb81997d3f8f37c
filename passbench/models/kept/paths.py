"""The expressions by which dynamo names what it read, as data: `L['model'].config`, `G['__import_torch'].nn`.

They come back from a file that anybody may have written, so they are walked step by step, never run: attributes, items,
types and the modules that are there already. No `__getattr__` or `__getitem__` is asked that could act on a name of the
file: `ctypes.cdll["/some/file.so"]` loads that file.
"""

import ast
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any

import torch

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
                return _item(base, argument)
            case "attribute":
                return _attribute(base, argument)
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


_INDEXED = (list, tuple, deque, range, MappingProxyType, torch.Size)
_READERS = [kind.__getitem__ for kind in _INDEXED]


def _item(base: Any, key: Any) -> Any:
    """`base[key]` of Python's own containers and of torch's modules. Raises UnknownPath on others."""
    reader = next((vars(kind)["__getitem__"] for kind in type(base).__mro__ if "__getitem__" in vars(kind)), None)
    if reader is dict.__getitem__:
        return dict.get(base, key, ABSENT)  # asks no __missing__
    if reader in _READERS or str(getattr(reader, "__module__", "")).startswith("torch.nn.modules."):
        return base[key]
    raise UnknownPath(f"an item of a {type(base).__qualname__}")


def _attribute(base: Any, name: str) -> Any:
    """`getattr(base, name)` where no `__getattr__` of another class than torch.nn.Module has to be asked for it; raises
    UnknownPath where one has."""
    own = _own(base)
    groups = [own, *map(vars, type(base).__mro__), *map(vars, base.__mro__ if isinstance(base, type) else ())]
    if isinstance(base, torch.nn.Module):
        groups += [own.get(group) or {} for group in ("_parameters", "_buffers", "_modules")]
    if any(name in group for group in groups):
        return getattr(base, name)
    if isinstance(base, ModuleType):
        return ABSENT
    if not (isinstance(base, torch.nn.Module) or name.isidentifier()):
        raise UnknownPath(f"{name!r} is no name")
    asked = next((vars(kind)["__getattr__"] for kind in type(base).__mro__ if "__getattr__" in vars(kind)), None)
    if asked not in (None, torch.nn.Module.__getattr__):
        raise UnknownPath(f"{name} of a {type(base).__qualname__}")
    return getattr(base, name)  # a configuration of transformers has names for other names


def _own(base: Any) -> Mapping[str, Any]:
    try:
        own = object.__getattribute__(base, "__dict__")
    except (AttributeError, TypeError):
        return {}
    return own if isinstance(own, dict | MappingProxyType) else {}

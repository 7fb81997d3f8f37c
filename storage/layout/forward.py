"""The `forward` of a model.py: its arguments, its body, and the names that the file imports."""

import ast
from dataclasses import dataclass

from storage.layout.errors import LayoutError, short
from storage.layout.names import imported
from storage.layout.syntax import dotted, line_of, outside, parse

MAX_ARGUMENTS = 100_000
_INTEGERS = frozenset(["int", "torch.SymInt", "SymInt"])
_PARAMETERS = frozenset(["torch.nn.parameter.Parameter", "torch.nn.Parameter", "Parameter"])
_OTHER_NUMBERS = frozenset(["float", "bool", "torch.SymFloat", "torch.SymBool", "SymFloat", "SymBool"])


@dataclass(frozen=True)
class Argument:
    """An argument of `forward`: `kind` is "tensor", "parameter", or "integer" for a size that is passed as a number."""

    name: str
    kind: str
    line: int


@dataclass(frozen=True)
class Forward:
    """`forward` as it stands in a file: arguments without `self`, statements, and name → dotted name of imports."""

    file: str
    arguments: tuple[Argument, ...]
    body: tuple[ast.stmt, ...]
    imports: dict[str, str]


def read_forward(text: str, file: str) -> Forward:
    """The `forward` of the one class in `text`, or the one function `forward`, as `GraphModule.code` prints it.

    `file` is the name for messages. Raises LayoutError; executes nothing.
    """
    module = parse(text, file)
    holders = [s for s in module.body if not isinstance(s, ast.Import | ast.ImportFrom) and not _is_text(s)]
    for statement in holders:
        if not isinstance(statement, ast.ClassDef | ast.FunctionDef):
            raise outside(statement, file, "stands outside of the class")
    if len(holders) != 1:
        line = line_of(holders[1]) if holders else None
        raise LayoutError("construct", f"{len(holders)} classes in place of one with a `forward`", file, line)
    function = _forward_of(holders[0], file) if isinstance(holders[0], ast.ClassDef) else holders[0]
    if not isinstance(function, ast.FunctionDef) or function.name != "forward":
        raise outside(function, file, "stands in place of a class with a `forward`")
    return Forward(file, _arguments(function, file), tuple(function.body), imported(module.body, file))


def _is_text(statement: ast.stmt) -> bool:
    constant = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(constant, ast.Constant) and isinstance(constant.value, str)


def _forward_of(definition: ast.ClassDef, file: str) -> ast.FunctionDef:
    bases = [dotted(base) for base in definition.bases]
    if bases not in (["torch.nn.Module"], ["nn.Module"], ["Module"]) or definition.keywords:
        raise outside(definition, file, "has another base than torch.nn.Module")
    if definition.decorator_list:
        raise outside(definition, file, "has a decorator")
    found = []
    for statement in definition.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "forward":
            found.append(statement)
        elif not _is_text(statement) and not isinstance(statement, ast.Pass) and not _is_plain_init(statement):
            raise outside(statement, file, "stands in the class beside its `forward`")
    if len(found) != 1:
        raise LayoutError("construct", f"the class has {len(found)} `forward`s", file, line_of(definition))
    return found[0]


def _is_plain_init(statement: ast.stmt) -> bool:
    """Whether this is an `__init__` that does nothing but call the one above it."""
    if not isinstance(statement, ast.FunctionDef) or statement.name != "__init__" or statement.decorator_list:
        return False
    empty = ast.unparse(statement.args) == "self"
    return empty and all(_is_text(s) or ast.unparse(s) in ("super().__init__()", "pass") for s in statement.body)


def _arguments(function: ast.FunctionDef, file: str) -> tuple[Argument, ...]:
    if function.decorator_list:
        raise outside(function, file, "has a decorator")
    declared = function.args
    if declared.vararg or declared.kwarg or declared.kwonlyargs or declared.defaults:
        raise outside(function, file, "has starred, keyword-only or default arguments")
    positional = [*declared.posonlyargs, *declared.args]
    if not positional or positional[0].arg != "self":
        raise outside(function, file, "does not take `self` first")
    if len(positional) > MAX_ARGUMENTS:
        raise LayoutError("too large", f"{len(positional)} arguments are more than {MAX_ARGUMENTS}", file)
    arguments = tuple(Argument(each.arg, _kind(each, file), each.lineno) for each in positional[1:])
    twice = {a.name for a in arguments}
    if len(twice) < len(arguments) or "self" in twice:
        raise LayoutError("syntax", "two arguments have the same name", file, line_of(function))
    return arguments


def _kind(argument: ast.arg, file: str) -> str:
    """What the annotation says; `print_readable` writes `f32[1, 3]` and `Sym(s0)` as strings."""
    annotation = argument.annotation
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return "integer" if annotation.value.startswith("Sym(") else "tensor"
    name = dotted(annotation) if annotation is not None else None
    if name in _INTEGERS:
        return "integer"
    if name in _PARAMETERS:
        return "parameter"
    if name in _OTHER_NUMBERS:
        raise LayoutError(
            "construct", f"argument {short(argument.arg)} is a {name}, not a tensor", file, argument.lineno
        )
    return "tensor"

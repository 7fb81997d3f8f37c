"""Members of a class of a pass, as its statements show them."""

import ast
from collections.abc import Iterator

from passbench.policy.nodes import assigned_by, walk, written_name


def members_of(own: ast.ClassDef) -> Iterator[tuple[ast.AST, str]]:
    """Names of the fields and methods of a class, each with the statement that binds it."""
    for statement in own.body:
        if isinstance(statement, ast.FunctionDef):
            yield statement, statement.name
            yield from ((statement, name) for name in assigned_to_self(statement))
    yield from ((own, name) for name in class_fields(own))


def class_fields(own: ast.ClassDef) -> Iterator[str]:
    for statement in own.body:
        yield from (t.id for t in assigned_by(statement) if isinstance(t, ast.Name))


def decorator_names(method: ast.FunctionDef) -> frozenset[str]:
    """What stands above a method, as written; "" for what is no name. It is listed once: calls ask for it."""
    if not hasattr(method, "_decorators"):
        method._decorators = frozenset(map(written_name, method.decorator_list))
    return method._decorators


def is_property(method: ast.FunctionDef) -> bool:
    """Whether what a method returns is read as an attribute."""
    return any(name.endswith("property") for name in decorator_names(method))


def is_setter(method: ast.FunctionDef) -> bool:
    """Whether a method is `@NAME.setter` or `@NAME.deleter` of a property."""
    written = (d for d in method.decorator_list if isinstance(d, ast.Attribute))
    return any(d.attr in ("setter", "deleter") and isinstance(d.value, ast.Name) for d in written)


def is_plain(method: ast.FunctionDef) -> bool:
    """Whether a method is one of instances: its first argument is whatever it is called on."""
    return decorator_names(method).isdisjoint(("staticmethod", "classmethod"))


def assigned_to_self(method: ast.FunctionDef) -> Iterator[str]:
    first = [*method.args.posonlyargs, *method.args.args][:1]
    for node in walk(method):
        stored = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if stored and first and isinstance(node.value, ast.Name) and node.value.id == first[0].arg:
            yield node.attr

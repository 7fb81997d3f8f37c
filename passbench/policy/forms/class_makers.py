"""Calls that make a class, or something like one, written as the class: named tuples and namespaces."""

import ast
from collections.abc import Callable, Mapping

NAMEDTUPLE = "collections.namedtuple"
"""As a name of a module's own, the base of the class; none of the source is spelled so."""


def named_tuple(node: ast.stmt, dotted: Callable[[ast.expr], str | None]) -> ast.ClassDef | None:
    """`NAME = namedtuple("NAME", ["a", "b"], defaults=(1,))` as a class; None for any other statement."""
    target, value = _assignment(node)
    if value is None or dotted(value.func) != "collections.namedtuple" or not isinstance(target, ast.Name):
        return None
    if len(value.args) != 2 or not isinstance(value.args[0], ast.Constant) or value.args[0].value != target.id:
        return None
    listed = value.args[1].elts if isinstance(value.args[1], ast.List | ast.Tuple) else [value.args[1]]
    texts = [part.value for part in listed if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    fields = " ".join(texts).replace(",", " ").split()
    written = len(texts) == len(listed) and all(field.isidentifier() for field in fields)
    given = _defaults(value)
    if not written or given is None or len(given) > len(fields):
        return None
    values: list[ast.expr | None] = [*[None] * (len(fields) - len(given)), *given]
    body: list[ast.stmt] = [
        ast.AnnAssign(ast.Name(field, ast.Store()), ast.Name("int", ast.Load()), default, 1)
        for field, default in zip(fields, values, strict=True)
    ]
    made = ast.ClassDef(target.id, [ast.Name(NAMEDTUPLE, ast.Load())], [], body or [ast.Pass()], [])
    return ast.fix_missing_locations(ast.copy_location(made, node))


def namespace(
    node: ast.stmt, dotted: Callable[[ast.expr], str | None], bound: Mapping[str, int]
) -> ast.ClassDef | None:
    """`NAME = SimpleNamespace(a=1)` as a class with this field, where nothing else binds the name; None for any other
    statement."""
    target, value = _assignment(node)
    if value is None or dotted(value.func) != "types.SimpleNamespace":
        return None
    if value.args or any(k.arg is None for k in value.keywords):
        return None
    if not isinstance(target, ast.Name) or bound[target.id] != 1:
        return None
    fields: list[ast.stmt] = []
    for keyword in value.keywords:
        name = ast.copy_location(ast.Name(keyword.arg, ast.Store()), keyword)
        fields.append(ast.copy_location(ast.Assign([name], keyword.value), keyword))
    made = ast.ClassDef(target.id, [], [], fields or [ast.copy_location(ast.Pass(), node)], [])
    return ast.copy_location(made, node)


def _assignment(node: ast.stmt) -> tuple[ast.expr | None, ast.Call | None]:
    """What a statement binds to what a call returns."""
    value = node.value if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
    return (node.targets[0], value) if isinstance(value, ast.Call) else (None, None)


def _defaults(call: ast.Call) -> list[ast.expr] | None:
    """The defaults of the last fields of a named tuple, written out; None where other options are given."""
    match call.keywords:
        case []:
            return []
        case [ast.keyword(arg="defaults", value=ast.Tuple(elts=given) | ast.List(elts=given))]:
            return None if any(isinstance(one, ast.Starred) for one in given) else given
    return None

"""What a loop takes apart: the parts of each item, where the source writes them out.

`for name, t in (("x", x), ("y", y))` and `for name, t in {"x": x}.items()` have a text and a tensor in each item.
"""

import ast

from passbench.policy.nodes import walk


def columns(iterable: ast.expr) -> list[list[ast.expr]] | None:
    """The first, second, … parts of the items of a list or tuple whose items are tuples of one length, all written
    out; None for other expressions."""
    rows = iterable.elts if isinstance(iterable, ast.Tuple | ast.List) else []
    if not rows or not all(isinstance(row, ast.Tuple | ast.List) for row in rows):
        return None
    if len({len(row.elts) for row in rows}) > 1 or any(isinstance(e, ast.Starred) for row in rows for e in row.elts):
        return None
    return [list(column) for column in zip(*(row.elts for row in rows), strict=True)]


def dict_of_items(iterable: ast.expr) -> ast.expr | None:
    """`D` of `D.items()`; None for other expressions."""
    if not isinstance(iterable, ast.Call) or iterable.args or iterable.keywords:
        return None
    method = iterable.func
    return method.value if isinstance(method, ast.Attribute) and method.attr == "items" else None


def has_plain_keys(node: ast.expr) -> bool:
    """Whether an expression is a dict whose keys are written out, or names within a comprehension."""
    if isinstance(node, ast.DictComp):
        return isinstance(node.key, ast.Name | ast.Constant)
    return isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys)


def dicts_of_variable(function: ast.FunctionDef, name: str) -> list[ast.expr] | None:
    """All dicts that a variable of a function can be, where each has plain keys and the function binds it in no other
    way; the parameter `**name` counts as none of them. None where it could have other keys."""
    arguments = function.args
    handed = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg) if a}
    if name in handed:
        return None
    found: list[ast.expr] = []
    known: set[ast.AST] = set()
    nodes = walk(function)
    for node in nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            target = node.target
        if isinstance(target, ast.Name) and target.id == name and has_plain_keys(node.value):
            found.append(node.value)
            known.add(target)
    for node in nodes:
        stored = isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
        updated = isinstance(node, ast.Attribute) and node.attr == "update"
        if (stored and node not in known) or (updated and isinstance(node.value, ast.Name) and node.value.id == name):
            return None
    kwarg = arguments.kwarg is not None and arguments.kwarg.arg == name
    return found if found or kwarg else None

"""Tables of a pass's functions that are only called out of: `LAUNCH = {"small": small, "large": large}`, then
`LAUNCH[size](x, n)`. What such functions get is known, as it is where they are called by name."""

import ast
from collections.abc import Iterator

from passbench.policy.modules import Module
from passbench.policy.nodes import walk


def call_tables(modules: dict[str, Module]) -> dict[tuple[str, str], tuple[ast.Name, ...]]:
    """Module and name of each table → where its functions are named.

    A table is written out at the top of a module and bound once; all that the pass does with it is to call one of its
    items, or to ask whether it has a key.
    """
    found = {}
    elsewhere = {n.attr for one in modules.values() for n in walk(one.tree) if isinstance(n, ast.Attribute)}
    elsewhere |= {stands_for.rpartition(".")[2] for one in modules.values() for stands_for in one.imports.values()}
    for module in modules.values():
        handed_on = elsewhere | set(_other_uses(module))
        for statement in module.tree.body:
            name, value = _bound(statement)
            if value is None or name in handed_on:
                continue
            items = value.values if isinstance(value, ast.Dict) else value.elts
            plain = isinstance(value, ast.Dict) and all(isinstance(key, ast.Constant) for key in value.keys)
            functions = all(isinstance(item, ast.Name) and item.id in module.functions for item in items)
            if items and functions and (plain or not isinstance(value, ast.Dict)):
                found[module.name, name] = tuple(items)
    return found


def _bound(statement: ast.stmt) -> tuple[str, ast.Dict | ast.List | ast.Tuple | None]:
    """The name and the display that a statement binds to it."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    value = getattr(statement, "value", None)
    display = isinstance(value, ast.Dict | ast.List | ast.Tuple)
    if len(targets) != 1 or not isinstance(targets[0], ast.Name) or not display:
        return "", None
    return targets[0].id, value


def _other_uses(module: Module) -> Iterator[str]:
    """Names that are bound more than once, and those that are used otherwise than as a table is."""
    allowed: set[ast.AST] = set()
    bound: set[str] = set()
    for node in walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            allowed.add(node.func.value)
        elif isinstance(node, ast.Compare) and all(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            allowed.add(node.comparators[-1])
    for node in walk(module.tree):
        if isinstance(node, ast.Name) and (not isinstance(node.ctx, ast.Store) or node.id in bound):
            if node not in allowed:
                yield node.id
        elif isinstance(node, ast.Name):
            bound.add(node.id)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            yield from node.names
        else:
            yield from (n for key in ("arg", "name") if isinstance(n := getattr(node, key, None), str))

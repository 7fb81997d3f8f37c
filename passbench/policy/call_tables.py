"""Tables of a pass's functions that are only called out of: `LAUNCH = {"small": small, "large": large}`, then
`LAUNCH[size](x, n)`. What such functions get is known, as it is where they are called by name."""

import ast
from collections.abc import Iterator

from passbench.policy.modules import Module
from passbench.policy.nodes import assigned_by, names_of, walk


def call_tables(modules: dict[str, Module]) -> dict[tuple[str, str], tuple[ast.Name, ...]]:
    """Module and name of each table → where its functions are named.

    A table is written out at the top of a module and bound once; all that the pass does with it is to call one of its
    items, to ask whether it has a key, or to list its keys.
    """
    found = {}
    elsewhere = _named_elsewhere(modules)
    for module in modules.values():
        asked = set(names_listed(module))
        keys = {node.id for node in asked}
        handed_on = elsewhere | set(_other_uses(module, asked))
        for statement in module.tree.body:
            name, value = _bound(statement)
            if value is None or name in handed_on:
                continue
            items = value.values if isinstance(value, ast.Dict) else value.elts
            plain = bool(_constant_keys(statement))
            functions = all(isinstance(item, ast.Name) and item.id in module.functions for item in items)
            if items and functions and (plain or (not isinstance(value, ast.Dict) and name not in keys)):
                found[module.name, name] = tuple(items)
    return found


def key_uses(modules: dict[str, Module]) -> set[ast.Name]:
    """Where a dict is only asked for its keys, as in `sorted(TABLE)`, and these are constants: it is written out at the
    top of a module and bound once, and nothing is put into it."""
    elsewhere = _named_elsewhere(modules)
    found: set[ast.Name] = set()
    for module in modules.values():
        asked = set(names_listed(module))
        written = {n for s in module.tree.body if (n := _constant_keys(s))} & {node.id for node in asked} - elsewhere
        if not written:
            continue
        read: set[ast.AST] = {*asked}
        for node in walk(module.tree):
            looked_up = isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)
            if looked_up or (isinstance(node, ast.Attribute) and node.attr in ("get", "items", "keys", "values")):
                read.add(node.value)
        fixed = written - set(_other_uses(module, read))
        found |= {node for node in asked if node.id in fixed}
    return found


def _constant_keys(statement: ast.stmt) -> str:
    """The name that a statement binds to a dict with constants for keys; "" for any other statement."""
    name, value = _bound(statement)
    fits = isinstance(value, ast.Dict) and all(isinstance(key, ast.Constant) for key in value.keys)
    return name if fits else ""


def _named_elsewhere(modules: dict[str, Module]) -> set[str]:
    """Names that some module reads as an attribute or imports."""
    found = {n.attr for one in modules.values() for n in walk(one.tree) if isinstance(n, ast.Attribute)}
    return found | {stands_for.rpartition(".")[2] for one in modules.values() for stands_for in one.imports.values()}


def names_listed(module: Module) -> Iterator[ast.Name]:
    """Names `T` among `asked_for_keys`: they ask a dict for its keys, an enumeration for its members."""
    yield from (node for node in asked_for_keys(module) if isinstance(node, ast.Name))


def asked_for_keys(module: Module) -> Iterator[ast.expr]:
    """What stands for `T` in `for key in T`, `T.keys()`, `", ".join(T)`, and `sorted(T)` and its kin, if they are
    built-ins."""
    for node in walk(module.tree):
        kind = type(node)
        if kind is ast.For or kind is ast.comprehension:
            used = node.iter
        elif kind is ast.Call and not node.keywords:
            used = _asked_for_keys(module, node)
        else:
            continue
        if used is not None:
            yield used


def _asked_for_keys(module: Module, call: ast.Call) -> ast.expr | None:
    function, given = call.func, call.args
    if isinstance(function, ast.Attribute) and function.attr == "keys" and not given:
        return function.value
    joins = isinstance(function, ast.Attribute) and function.attr == "join" and isinstance(function.value, ast.Constant)
    lists = isinstance(function, ast.Name) and function.id in _OF_KEYS and function.id not in module.names_bound
    return given[0] if len(given) == 1 and (joins or lists) else None


_OF_KEYS = frozenset("sorted list tuple set len".split())


def _bound(statement: ast.stmt) -> tuple[str, ast.Dict | ast.List | ast.Tuple | None]:
    """The name and the display that a statement binds to it."""
    targets = assigned_by(statement)
    value = getattr(statement, "value", None)
    display = isinstance(value, ast.Dict | ast.List | ast.Tuple)
    if len(targets) != 1 or not isinstance(targets[0], ast.Name) or not display:
        return "", None
    return targets[0].id, value


def _other_uses(module: Module, known: set[ast.AST]) -> Iterator[str]:
    """Names that are bound more than once, and those that are used otherwise than as a table is, or where `known`."""
    allowed = {*known}
    bound: set[str] = set()
    for node in walk(module.tree):
        if type(node) is ast.Call and isinstance(node.func, ast.Subscript):
            allowed.add(node.func.value)
        elif type(node) is ast.Compare and all(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            allowed.add(node.comparators[-1])
    for node in walk(module.tree):
        kind = type(node)
        if kind is ast.Name and (not isinstance(node.ctx, ast.Store) or node.id in bound):
            if node not in allowed:
                yield node.id
        elif kind is ast.Name:
            bound.add(node.id)
        elif kind is ast.Global or kind is ast.Nonlocal:
            yield from node.names
        else:
            yield from names_of(node)

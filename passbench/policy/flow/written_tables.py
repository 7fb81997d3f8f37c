"""Tables of a module whose rows are only taken apart: `RULES = [(fits, launch), …]`, then `for fits, launch in RULES`.
What one column holds never comes into another."""

import ast
from collections import Counter

from passbench.policy.item_parts import columns
from passbench.policy.modules import Module
from passbench.policy.nodes import assigned_by, walk

Columns = list[list[ast.expr]]


def tables_of_rows(modules: dict[str, Module]) -> dict[tuple[str, str], Columns]:
    """Module and name of each table → its columns. A table is written out at the top of a module and bound once, its
    rows are tuples of one length, and all that reads it is a loop that gives each part of a row a name."""
    found: dict[tuple[str, str], Columns] = {}
    nodes = {name: walk(module.tree) for name, module in modules.items()}
    elsewhere = {n.attr for every in nodes.values() for n in every if isinstance(n, ast.Attribute)}
    elsewhere |= {stands_for.rpartition(".")[2] for one in modules.values() for stands_for in one.imports.values()}
    for name, module in modules.items():
        written = dict(filter(None, map(_written, module.tree.body)))
        if not written:
            continue
        named: Counter[str] = Counter()
        taken: Counter[str] = Counter()
        for node in nodes[name]:
            if isinstance(node, ast.Name):
                named[node.id] += 1
            elif isinstance(node, ast.For | ast.comprehension) and isinstance(node.iter, ast.Name):
                fits = _names(node.target) == len(written.get(node.iter.id, ()))
                taken[node.iter.id] += fits
            elif isinstance(node, ast.Global | ast.Nonlocal):
                named.update(node.names)
            elif not isinstance(node, ast.keyword):
                bound = (getattr(node, key, None) for key in ("name", "asname", "arg", "rest"))
                named.update(one for one in bound if isinstance(one, str))
        for table, parts in written.items():
            if named[table] == 1 + taken[table] and table not in elsewhere:
                found[name, table] = parts
    return found


def _written(statement: ast.stmt) -> tuple[str, Columns] | None:
    """The name that a statement binds, and the columns of what it binds to it."""
    targets = assigned_by(statement)
    value = getattr(statement, "value", None)
    plain = len(targets) == 1 and isinstance(targets[0], ast.Name) and isinstance(value, ast.List | ast.Tuple)
    parts = columns(value) if plain else None
    return (targets[0].id, parts) if parts else None


def _names(target: ast.expr) -> int:
    """How many names a loop gives to the parts of a row; 0 where it does something else."""
    names = target.elts if isinstance(target, ast.Tuple) else []
    return len(names) if all(isinstance(one, ast.Name) for one in names) else 0

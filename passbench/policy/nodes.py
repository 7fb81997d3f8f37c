"""The nodes of a syntax tree. The policy looks at each some twenty times, so that its children are listed once."""

import ast
from collections import Counter

_NAMING = ("name", "arg", "rest")
"""Fields that hold the name which a node binds."""


def children(node: ast.AST) -> list[ast.AST]:
    """What `ast.iter_child_nodes` yields. A module's statements may change, no other node may."""
    try:
        return node._children
    except AttributeError:
        found = []
        for value in (getattr(node, name, None) for name in node._fields):
            if isinstance(value, ast.AST):
                found.append(value)
            elif isinstance(value, list):
                found += [item for item in value if isinstance(item, ast.AST)]
        if not isinstance(node, ast.Module):
            node._children = found
        return found


def assigned_by(statement: ast.stmt) -> list[ast.expr]:
    """What an assignment binds, also one with an annotation; nothing of any other statement."""
    if isinstance(statement, ast.AnnAssign):
        return [statement.target]
    return statement.targets if isinstance(statement, ast.Assign) else []


def bound_by(statement: ast.stmt) -> list[str]:
    """Names that a statement of a module or class binds there, each as often as it does."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    return [n.id for n in walk(statement) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)]


def bound_names(place: ast.Module | ast.FunctionDef) -> Counter[str]:
    """How often each name is bound anywhere in a module or function; one that `global` mentions, once more."""
    found: Counter[str] = Counter()
    for node in walk(place):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found[node.id] += 1
        elif isinstance(node, ast.Global | ast.Nonlocal):
            found.update(node.names)
        elif isinstance(node, ast.alias):
            found[node.asname or node.name.partition(".")[0]] += 1
        elif not isinstance(node, ast.keyword):
            for key in _NAMING:
                if isinstance(name := getattr(node, key, None), str):
                    found[name] += 1
    return found


def walk(node: ast.AST) -> list[ast.AST]:
    """What `ast.walk` yields: the node and all below it, those nearer to it first."""
    found = [node]
    for one in found:  # grows meanwhile
        try:
            found += one._children
        except AttributeError:
            found += children(one)
    return found

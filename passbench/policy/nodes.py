"""The nodes of a syntax tree. The policy looks at each some twenty times, so that its children are listed once."""

import ast
from collections import Counter


def children(node: ast.AST) -> list[ast.AST]:
    """What `ast.iter_child_nodes` yields. A module's statements may change, no other node may."""
    if isinstance(node, ast.Module):
        return list(ast.iter_child_nodes(node))
    found = getattr(node, "_children", None)
    if found is None:
        found = node._children = list(ast.iter_child_nodes(node))
    return found


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
            found.update(n for key in ("name", "arg", "rest") if isinstance(n := getattr(node, key, None), str))
    return found


def walk(node: ast.AST) -> list[ast.AST]:
    """What `ast.walk` yields: the node and all below it, those nearer to it first."""
    found = [node]
    for one in found:  # grows meanwhile
        found += children(one)
    return found

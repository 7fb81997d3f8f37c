"""The nodes of a syntax tree. The policy looks at each some twenty times, so that its children are listed once."""

import ast


def children(node: ast.AST) -> list[ast.AST]:
    """What `ast.iter_child_nodes` yields. A module's statements may change, no other node may."""
    if isinstance(node, ast.Module):
        return list(ast.iter_child_nodes(node))
    found = getattr(node, "_children", None)
    if found is None:
        found = node._children = list(ast.iter_child_nodes(node))
    return found


def walk(node: ast.AST) -> list[ast.AST]:
    """What `ast.walk` yields: the node and all below it, those nearer to it first."""
    found = [node]
    for one in found:  # grows meanwhile
        found += children(one)
    return found

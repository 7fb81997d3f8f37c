"""`typing.cast(T, value)` as the value, which is what it returns, and `MappingProxyType(items)` as the dict, which it
shows."""

import ast
from collections.abc import Callable, Collection

_CASTS = frozenset(("typing.cast", "typing_extensions.cast"))
_LIBRARIES = ("typing.", "typing_extensions.", "collections.abc.")
_OF_ITEMS = frozenset("tuple list dict set type".split())

Dotted = Callable[[ast.expr], str | None]


def without_casts(node: ast.AST, dotted: Dotted, bound: Collection[str]) -> ast.AST:
    """An expression, or the value of a cast whose type is written out: making one calls nothing of the pass. `dotted`
    says what a name stands for that starts at an import, `bound` holds the names that the module binds: brackets behind
    a `tuple` of its own could put into it what they hold."""
    while isinstance(node, ast.Call) and dotted(node.func) == "types.MappingProxyType" and not node.keywords:
        if len(node.args) != 1 or not isinstance(node.args[0], ast.Dict | ast.DictComp | ast.Name):
            break
        node = node.args[0]
    while isinstance(node, ast.Call) and dotted(node.func) in _CASTS:
        plain = len(node.args) == 2 and not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
        if not plain or not _is_type(node.args[0], dotted, bound):
            break
        node = node.args[1]
    return node


def _is_type(node: ast.expr, dotted: Dotted, bound: Collection[str]) -> bool:
    """Whether an expression is a type that is written out, such as `"torch.Tensor"` or `Sequence[int] | None`."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Constant | ast.Name):
            continue
        if isinstance(part, ast.Tuple | ast.List):
            waiting += part.elts
        elif isinstance(part, ast.BinOp) and isinstance(part.op, ast.BitOr):
            waiting += [part.left, part.right]
        elif isinstance(part, ast.Subscript) and _holds_items(part.value, dotted, bound):
            waiting.append(part.slice)
        elif not isinstance(part, ast.Attribute) or not _is_public(dotted(part) or ""):
            return False
    return True


def _holds_items(node: ast.expr, dotted: Dotted, bound: Collection[str]) -> bool:
    """Whether an expression is a type that is given others in brackets."""
    found = dotted(node)
    if found:
        return found.startswith(_LIBRARIES) and _is_public(found)
    return isinstance(node, ast.Name) and node.id in _OF_ITEMS and node.id not in bound


def _is_public(name: str) -> bool:
    known = name.startswith((*_LIBRARIES, "torch."))
    return known and not any(part.startswith("_") for part in name.split("."))

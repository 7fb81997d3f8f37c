"""Enumerations without members, which make another enumeration where they are called.

`A("NEW", {"NAME": value, …})` of `class A(enum.Enum)` that has no member makes a class with all that the dict holds,
under names such as `__reduce_ex__`, too, which the pass may not define. Of one with a member Python makes no other.
"""

import ast
from collections.abc import Callable, Collection, Iterator

from passbench.policy.nodes import assigned_by, children

_FLAGS = frozenset(("enum.Flag", "enum.IntFlag"))
_WRITTEN = ast.Constant | ast.Tuple | ast.List | ast.Dict | ast.Set | ast.UnaryOp | ast.BinOp | ast.JoinedStr
"""Expressions whose value is no function and nothing else that Python takes for a method."""


def has_member(own: ast.ClassDef, bases: set[str], is_member: Callable[[ast.expr], bool]) -> bool:
    """Whether an enumeration surely has a member: a public name with a value that is written out, or one of which
    `is_member` says so. `bases` are the full names of what it derives from. Of a flag, Python counts those of one bit
    alone."""
    for statement in own.body:
        targets = [t.id for t in assigned_by(statement) if isinstance(t, ast.Name)]
        value = statement.value if any(not name.startswith("_") for name in targets) else None
        number = value.value if isinstance(value, ast.Constant) else 0
        if value is not None and (is_member(value) or (type(number) is int and number > 0 and number.bit_count() == 1)):
            return True
        if isinstance(value, _WRITTEN) and not bases & _FLAGS:
            return True
    return False


def used_as_values(tree: ast.AST, bound: Collection[str]) -> Iterator[ast.Name | ast.Attribute]:
    """Names and attribute chains that a module reads, but for the bases of classes, types, and what `isinstance` asks
    for, where the module does not bind that name. The parts of a chain are read, too."""
    asks = {"isinstance"} - set(bound)
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield node
        aside = {getattr(node, "annotation", None), getattr(node, "returns", None)}
        if isinstance(node, ast.ClassDef):
            aside.update(node.bases)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in asks:
            aside.update(node.args[1:])
        waiting += [child for child in children(node) if child not in aside]

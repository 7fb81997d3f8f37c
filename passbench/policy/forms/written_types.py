"""What types are made of that are written out, and where a data class keeps them."""

import ast
from collections.abc import Callable, Iterator

from passbench.policy.nodes import children, walk

Dotted = Callable[[ast.expr], str | None]


def attributes_in_type(node: ast.expr) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    """The whole attribute chains in a type, each with what it starts at: `typing.Dict` and `shared.Plan` of
    `typing.Dict[str, shared.Plan]`."""
    waiting: list[ast.AST] = [node]
    while waiting:
        part = root = waiting.pop()
        while isinstance(root, ast.Attribute):
            root = root.value
        if root is not part:
            yield part, root
        else:
            waiting += children(part)


def stray_fields(tree: ast.Module, dotted: Dotted) -> Iterator[ast.Call]:
    """`dataclasses.field(…)` where it is not the whole value of an annotated field of a data class. It has the type as
    its `type`, so that `field.type` of `x: os.system = field` would be the function."""
    described: set[ast.expr | None] = set()
    for own in (s for s in tree.body if isinstance(s, ast.ClassDef)):
        targets = (d.func if isinstance(d, ast.Call) else d for d in own.decorator_list)
        if any(dotted(target) == "dataclasses.dataclass" for target in targets):
            described |= {s.value for s in own.body if isinstance(s, ast.AnnAssign)}
    for node in walk(tree):
        if isinstance(node, ast.Call) and node not in described and dotted(node.func) == "dataclasses.field":
            yield node

"""What a heuristic of Triton returns: a number of Python's, whatever its operands are. A kernel gets it as it is."""

import ast
from collections.abc import Collection

from passbench.policy import allowlists as names
from passbench.policy.modules import Module
from passbench.policy.nodes import walk
from passbench.policy.scopes import own_nodes

_COUNTING = frozenset("numel nelement dim ndimension element_size".split())
"""Methods of tensors that return a number, and that no library's other objects have."""


def is_plain_number(
    node: ast.expr, module: Module, members: Collection[str], known: frozenset[str] = frozenset()
) -> bool:
    """Whether the value of an expression is a Python number, boolean or text. `members` are names of fields and methods
    of the pass's classes, `known` variables that are numbers."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]) if module.dotted(node.func) is None:
            return name in _COUNTING and name not in members
        case ast.Call(func=ast.Name(id=name)) if name in names.HEURISTIC_CALLS:
            return name not in module.names_bound
        case ast.Call():
            return module.dotted(node.func) in ("triton.next_power_of_2", "triton.cdiv")
        case ast.IfExp():
            return is_plain_number(node.body, module, members, known) and is_plain_number(
                node.orelse, module, members, known
            )
        case ast.BoolOp():
            return all(is_plain_number(v, module, members, known) for v in node.values)
        case ast.BinOp():
            return is_plain_number(node.left, module, members, known) and is_plain_number(
                node.right, module, members, known
            )
        case ast.Name():
            return node.id in known
    return isinstance(node, ast.Constant | ast.Compare)


def returns_plain_numbers(function: ast.FunctionDef, module: Module, members: Collection[str]) -> bool:
    """Whether all that a function returns is a plain number: written out, or a variable that is given nothing else.
    It stands in `module`. `members`: see `is_plain_number`."""
    if function.decorator_list or any(isinstance(n, ast.Yield | ast.YieldFrom | ast.Nonlocal) for n in walk(function)):
        return False
    given: dict[str, list[ast.expr]] = {}
    targets: set[ast.Name] = set()
    others = {a.arg for a in walk(function) if isinstance(a, ast.arg)}
    nodes = list(own_nodes(function))
    for node in nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(node, ast.AugAssign):
            target = node.target
        if isinstance(target, ast.Name):
            given.setdefault(target.id, []).append(node.value)
            targets.add(target)
    others |= {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load) and n not in targets}
    others |= {name for n in nodes if isinstance(n, ast.Global) for name in n.names}
    others |= {
        n.name
        for n in nodes
        if isinstance(n, ast.ExceptHandler | ast.FunctionDef | ast.MatchAs | ast.MatchStar) and n.name
    }
    known: frozenset[str] = frozenset()
    for name, values in given.items():  # each may name those before it
        if name not in others and all(is_plain_number(v, module, members, known | {name}) for v in values):
            known |= {name}
    returned = [n.value for n in nodes if isinstance(n, ast.Return)]
    return bool(returned) and all(v is not None and is_plain_number(v, module, members, known) for v in returned)

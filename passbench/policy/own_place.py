"""Paths of the pass's own directory, which host code may put on `sys.path` so that siblings are found."""

import ast

from passbench.policy.modules import Module

_PATH_PARTS = frozenset(
    """os.path.dirname os.path.abspath os.path.realpath os.path.join pathlib.Path sys.path.insert sys.path.append
    sys.path""".split()
)


def extends_path(node: ast.expr, module: Module) -> bool:
    """`sys.path.insert(0, os.path.dirname(__file__))` and its kin, which makes siblings importable and no more."""
    if not isinstance(node, ast.Call) or module.dotted(node.func) not in ("sys.path.insert", "sys.path.append"):
        return False
    return not node.keywords and all(_is_own_place(a, module) for a in node.args)


def tests_path(node: ast.expr, module: Module) -> bool:
    """`DIRECTORY not in sys.path`."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.NotIn)
        and len(node.ops) == 1
        and module.dotted(node.comparators[0]) == "sys.path"
        and _is_own_place(node.left, module)
    )


def _is_own_place(node: ast.expr, module: Module) -> bool:
    """Whether an expression is a path made of `__file__`: the pass's directory or one above it. Whole numbers, too."""
    if isinstance(node, ast.Constant):
        return node.value in ("..", ".") or type(node.value) is int
    if isinstance(node, ast.Name):
        return node.id == "__file__"
    if isinstance(node, ast.Attribute):
        return node.attr in ("parent", "resolve") and _is_own_place(node.value, module)
    if not isinstance(node, ast.Call) or node.keywords:
        return False
    text = isinstance(node.func, ast.Name) and node.func.id == "str" and "str" not in module.globals
    known = text or module.dotted(node.func) in _PATH_PARTS or _is_own_place(node.func, module)
    return known and all(_is_own_place(a, module) for a in node.args)

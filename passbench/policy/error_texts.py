"""What a caught error says: an index that is out of bounds, and so a value of a tensor. It is shown, and not read."""

import ast
from collections.abc import Iterator

from passbench.policy import allowlists as names
from passbench.policy.nodes import children, walk
from passbench.policy.scopes import Scope

_TEXT = (ast.JoinedStr, ast.FormattedValue, ast.BinOp, ast.Tuple, ast.keyword)
_MAKE_TEXT = frozenset(("str", "repr"))


def uses_of_text(handler: ast.ExceptHandler, scope: Scope) -> Iterator[ast.Name]:
    """Names of the caught error, within its handler, by which host code could read what it says: all but those whose
    text is printed, logged, a warning, or raised again, and those that ask for its type."""
    parents = {child: node for node in walk(handler) for child in children(node)}
    for node in walk(handler):
        named = isinstance(node, ast.Name) and node.id == handler.name and isinstance(node.ctx, ast.Load)
        if named and (_is_within(node, parents) or not _is_shown(node, parents, scope)):
            yield node


def _is_within(node: ast.expr, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether a name stands in a function within the handler, where others may mean something else."""
    above: ast.AST | None = node
    while above is not None and not isinstance(above, ast.FunctionDef | ast.Lambda):
        above = parents.get(above)
    return above is not None


def _is_shown(node: ast.expr, parents: dict[ast.AST, ast.AST], scope: Scope) -> bool:
    above = parents[node]
    while isinstance(above, _TEXT) or (isinstance(above, ast.Call) and _is_built_in(above.func, _MAKE_TEXT, scope)):
        above = parents[above]
    if isinstance(above, ast.Call):
        if _is_built_in(above.func, names.ERRORS, scope):
            return isinstance(parents[above], ast.Raise)
        if _is_built_in(above.func, {"type", "isinstance"}, scope):
            return True
        return _shows(above.func, scope) and isinstance(parents[above], ast.Expr)
    return isinstance(above, ast.Raise)


def _shows(function: ast.expr, scope: Scope) -> bool:
    """Whether a function hands text to a log, which nobody reads."""
    if isinstance(function, ast.Attribute) and function.attr in names.LOGGING_METHODS:
        return True
    return _is_built_in(function, {"print"}, scope) or scope.module.dotted(function) == "warnings.warn"


def _is_built_in(function: ast.expr, wanted: frozenset[str] | set[str], scope: Scope) -> bool:
    return isinstance(function, ast.Name) and function.id in wanted and scope.find(function.id) is None


def only_imports(body: list[ast.stmt]) -> bool:
    """Whether statements import and set constants alone: nothing else ends there that must not be caught."""
    return all(
        isinstance(s, ast.Import | ast.ImportFrom | ast.Pass)
        or (isinstance(s, ast.Assign) and isinstance(s.value, ast.Constant))
        for s in body
    )


def raises_again(handler: ast.ExceptHandler) -> bool:
    """Whether a handler ends with `raise`, and may be left in no other way."""
    last = handler.body[-1]
    leaves = ast.Return | ast.Break | ast.Continue
    plain = not any(isinstance(n, leaves) for s in handler.body for n in walk(s))
    return isinstance(last, ast.Raise) and last.exc is None and plain

"""Functions under `contextlib.contextmanager`, which a pass writes `with NAME(…):` of and nothing else.

Such a function is a generator that Python takes to its end where the `with` ends. A generator of other use goes on when
it is asked, in a later call perhaps, and has rules of its own.
"""

import ast
from collections.abc import Callable, Iterable

from passbench.policy.nodes import walk

MANAGER = "contextlib.contextmanager"
_ADVICE = (
    "a context manager has one `yield` on each way through it, as a statement, in no loop, before no except of"
    " everything and before no finally that returns"
)


def managers(
    functions: Iterable[ast.FunctionDef], dotted: Callable[[ast.expr], str | None]
) -> dict[ast.FunctionDef, str]:
    """Functions that are context managers, each with what is wrong with it, "" where nothing is. `dotted` says what a
    name stands for that starts at an import."""
    return {
        function: fault(function)
        for function in functions
        if [dotted(decorator) for decorator in function.decorator_list] == [MANAGER]
    }


def entered(tree: ast.AST) -> set[ast.expr]:
    """What stands behind `with` in a module."""
    return {item.context_expr for node in walk(tree) if isinstance(node, ast.With) for item in node.items}


def runs_at_the_end(node: ast.AST) -> bool:
    """Whether a statement has code that runs where a generator within it ends, which Python may end by collecting it:
    a `finally`, or an `except` of everything."""
    return isinstance(node, ast.Try) and (bool(node.finalbody) or any(h.type is None for h in node.handlers))


def fault(function: ast.FunctionDef) -> str:
    """Why a generator may hand out more than one value, or run when Python collects it; "" where neither can be."""
    found: set[ast.expr] = set()
    most = _pauses(function.body, found)
    every = {node for node in walk(function) if isinstance(node, ast.Yield | ast.YieldFrom)}
    return "" if found == every and most == 1 else _ADVICE


def _pauses(body: list[ast.stmt], found: set[ast.expr]) -> int:
    """How often statements yield at most; 2 where they do in a place that is not allowed. `found`: each `yield`."""
    most = 0
    for statement in body:
        match statement:
            case ast.Expr(value=ast.Yield()):
                found.add(statement.value)
                most += 1
            case ast.If():
                most += max(_pauses(statement.body, found), _pauses(statement.orelse, found))
            case ast.With():
                most += _pauses(statement.body, found)
            case ast.Try() if not any(h.type is None for h in statement.handlers) and not _leaves(statement.finalbody):
                blocks = (statement.body, statement.orelse, *(h.body for h in statement.handlers))
                most += sum(_pauses(block, found) for block in blocks)
    return most


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether a `finally` may end otherwise than at its end, so that an error goes no further."""
    leaves = ast.Return | ast.Break | ast.Continue
    return any(isinstance(node, leaves) for statement in body for node in walk(statement))

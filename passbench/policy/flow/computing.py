"""Functions that only compute with what they are given: they call nothing of the pass and look nothing up."""

import ast
from collections.abc import Callable

from passbench.policy.nodes import walk
from passbench.policy.scopes import Scope, built_in_called, open_scope

_OPERATORS = frozenset(("operator.add", "operator.sub", "operator.mul"))
"""Functions for which no class of a pass can have a method, so that they call none."""
_NUMBERS = frozenset("abs bool float int len max min range round sum".split())
_STATEMENTS = ast.Return | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.If | ast.For | ast.While | ast.Pass
_PARTS = (
    ast.Name | ast.Constant | ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare | ast.IfExp | ast.Tuple | ast.Call
    | ast.operator | ast.unaryop | ast.boolop | ast.cmpop | ast.expr_context
)  # fmt: skip


def reduces_by_operator(node: ast.Call, dotted: Callable[[ast.expr], str | None]) -> bool:
    """Whether a call is like `functools.reduce(operator.mul, x.shape, 1)`. `dotted` says what a name stands for that
    starts at an import."""
    if dotted(node.func) != "functools.reduce" or len(node.args) < 2 or node.keywords:
        return False
    return dotted(node.args[0]) in _OPERATORS and not any(isinstance(a, ast.Starred) for a in node.args)


def makes_numbers_of_numbers(function: ast.FunctionDef, home: Scope) -> bool:
    """Whether what a function of a module returns holds no tensor where its arguments hold none: it uses its
    parameters, its variables, constants and built-ins such as `max`, by operators alone."""
    if not hasattr(function, "_of_numbers"):
        function._of_numbers = _makes_numbers(function, open_scope(home.module, function, home))
    return function._of_numbers


def _makes_numbers(function: ast.FunctionDef, own: Scope) -> bool:
    given = [*function.args.defaults, *(d for d in function.args.kw_defaults if d is not None)]
    if function.decorator_list or not all(isinstance(default, ast.Constant) for default in given):
        return False
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    types = {id(part) for s in walk(function) if isinstance(s, ast.AnnAssign) for part in walk(s.annotation)}
    nodes = [node for statement in body for node in walk(statement) if id(node) not in types]
    called = [node for node in nodes if isinstance(node, ast.Call)]
    if not all(built_in_called(node, own) in _NUMBERS and not node.keywords for node in called):
        return False
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    return named <= own.names | _NUMBERS and all(isinstance(node, _STATEMENTS | _PARTS) for node in nodes)

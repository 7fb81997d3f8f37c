"""`from shared import replacement_func`, where the modules of a pass have one in common, as a function that stands in
the module which imports it."""

import ast
import copy
import itertools
from collections import Counter
from collections.abc import Mapping

from passbench.contract import PACKAGE
from passbench.policy.nodes import bound_at

_TAKEN = ("replacement_args", "replacement_func")
_MOST_COPIED = 20_000
"""Nodes by which the modules of a pass grow at most: 255 of them may take one function."""


def write_taken_functions(trees: Mapping[str, ast.Module], rules: tuple[str, ...]) -> None:
    """Write such functions into the listed modules `rules`, in place, where nothing else binds the name there.

    `replacement_args` is copied where it picks parameters and constants alone. `replacement_func` returns the function
    that the other module's returns, or, where that module is not listed, what a call of it returns. Call this before
    anything walks the trees.
    """
    bound = {name: _bound(tree) for name, tree in trees.items()}
    left = _MOST_COPIED
    for rule in rules:
        for statement in list(trees[rule].body) if rule in trees else ():
            source = _source(statement)
            for alias in list(statement.names) if source in trees else ():
                taken = alias.name in _TAKEN and alias.asname in (None, alias.name)
                alone = taken and bound[source][alias.name] == 1 == bound[rule][alias.name]
                function = _plain(trees[source], alias.name) if alone else None
                left -= _size(function) if function is not None and left >= 0 else 0
                if function is None or left < 0:
                    continue
                made = _made(function, alias, source if source not in rules else None, trees[source])
                if made is not None:
                    _put_in(made, statement, alias, trees[rule])


def _source(statement: ast.stmt) -> str:
    """The module of the pass from which a statement imports; "" if it may be none."""
    if not isinstance(statement, ast.ImportFrom) or statement.level > 1:
        return ""
    source = statement.module or ""
    return source if statement.level else source.removeprefix(f"{PACKAGE}.")


def _plain(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The function of this name without decorators at the top of a module."""
    found = (s for s in tree.body if isinstance(s, ast.FunctionDef) and s.name == name and not s.decorator_list)
    return next(found, None)


def _bound(tree: ast.Module) -> Counter[str]:
    """How often a module binds each of these names, or declares it global."""
    return Counter(name for node in ast.walk(tree) for name in bound_at(node) if name in _TAKEN)


def _size(function: ast.FunctionDef) -> int:
    """Nodes of a function, as many as may be copied and one more at most."""
    return sum(1 for _ in itertools.islice(ast.walk(function), _MOST_COPIED + 1))


def _made(
    function: ast.FunctionDef, alias: ast.alias, unlisted: str | None, home: ast.Module
) -> ast.FunctionDef | None:
    """The function as the other module has it, None where it does more. The alias imports what it names instead."""
    if alias.name == "replacement_args":
        given = {a.arg for a in function.args.args}
        named = {n.id for s in function.body for n in ast.walk(s) if isinstance(n, ast.Name)}
        return copy.deepcopy(function) if named <= given else None
    returned: ast.expr
    match [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]:
        case [ast.Return(value=ast.Name(id=name))] if name in {getattr(s, "name", None) for s in home.body}:
            alias.name, alias.asname = name, f"{name} of replacement_func"  # which no source can spell
            returned = ast.Name(alias.asname, ast.Load())
        case _ if unlisted is not None:
            alias.asname = f"replacement_func of {unlisted}"
            returned = ast.Call(ast.Name(alias.asname, ast.Load()), [], [])
        case _:
            return None
    return ast.FunctionDef(function.name, copy.deepcopy(function.args), [ast.Return(returned)], [], None, None)


def _put_in(made: ast.FunctionDef, statement: ast.ImportFrom, alias: ast.alias, tree: ast.Module) -> None:
    """Put a function behind the import, which keeps what else it imports. All of it stands on the import's line."""
    if made.name == "replacement_args":
        statement.names.remove(alias)
    for node in ast.walk(made):
        if isinstance(node, ast.expr | ast.stmt | ast.arg):
            ast.copy_location(node, statement)
    number = tree.body.index(statement)
    tree.body[number : number + 1] = [*([statement] if statement.names else []), made]

"""`from shared import replacement_func`, where the modules of a pass have one in common, as a function that stands in
the module which imports it."""

import ast
import copy
from collections.abc import Mapping

from passbench.contract import PACKAGE
from passbench.policy.nodes import bound_at

_TAKEN = ("replacement_args", "replacement_func")


def write_taken_functions(trees: Mapping[str, ast.Module], rules: tuple[str, ...]) -> None:
    """Write such functions into the listed modules `rules`, in place, where nothing else binds the name there.

    `replacement_args` is copied where it picks parameters and constants alone. `replacement_func` returns the function
    that the other module's returns, or, where that module is not listed, what a call of it returns. Call this before
    anything walks the trees.
    """
    for rule in rules:
        for statement in list(trees[rule].body) if rule in trees else ():
            source = _source(statement)
            for alias in list(statement.names) if source in trees else ():
                taken = alias.name in _TAKEN and alias.asname in (None, alias.name)
                function = _only(trees[source], alias.name) if taken else None
                if function is None or _count(trees[rule], alias.name) != 1:
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


def _only(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The plain function of this name at the top of a module, which binds it in no other way."""
    found = [s for s in tree.body if isinstance(s, ast.FunctionDef) and s.name == name and not s.decorator_list]
    return found[0] if found and _count(tree, name) == 1 else None


def _count(tree: ast.Module, name: str) -> int:
    """How often a module binds a name, or declares it global."""
    return sum(bound_at(node).count(name) for node in ast.walk(tree))


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

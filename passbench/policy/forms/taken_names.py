"""What a module of a pass takes from another one, as if it stood in the module which imports it: a `replacement_func`
that they have in common, and what the other module has itself imported.

`from shared import *` names what is imported by it.
"""

import ast
import copy
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping

from passbench.contract import PACKAGE
from passbench.policy.nodes import bound_at

_TAKEN = ("replacement_args", "replacement_func")
_MOST_HOPS = 8
"""Modules through which a name goes at most."""
_MOST_NAMED = 5_000
"""Names that stars of a pass stand for at most."""
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


def write_taken_imports(trees: Mapping[str, ast.Module]) -> None:
    """Write `from shared import torch` as `import torch`, in place, where `shared` imports that at its top and binds
    the name by nothing else. Write `from shared import *` as `from shared import f, torch`, with all that `shared`
    binds. Call this before anything walks the trees.

    The star stays where the module that has it binds one of these names by more than an import: what comes last would
    decide what the name means.
    """
    if len(trees) == 1:
        return
    left = _MOST_NAMED
    public: dict[str, set[str] | None] = {}
    for tree in trees.values():
        stars = [node for node in ast.walk(tree) if _is_star(node) and _source(node) in trees]
        own = _bound_by_more_than_imports(tree) if stars else set()
        for star in stars:
            source = _source(star)
            if source not in public:
                public[source] = _public(trees[source])
            given = public[source]
            left -= len(given or ())
            if given and left >= 0 and given.isdisjoint(own):
                star.names = [ast.copy_location(ast.alias(name), star) for name in sorted(given)]
    imported = {name: _imported(tree) for name, tree in trees.items()}
    for tree in trees.values():
        for node in ast.walk(tree):
            for block in (getattr(node, field, None) for field in ("body", "orelse", "finalbody")):
                if isinstance(block, list):
                    block[:] = [made for statement in block for made in _from_where_it_is(statement, imported)]


def _is_star(statement: ast.AST) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*"


def _public(tree: ast.Module) -> set[str] | None:
    """The names that `from MODULE import *` binds, or may bind; None where the module has a star itself, or an
    `__all__` that is more than a list of texts."""
    everything = list(ast.walk(tree))
    if any(map(_is_star, everything)):
        return None
    found = {name for node in _at_import(tree) for name in bound_at(node)}
    found.update(name for node in everything if isinstance(node, ast.Global) for name in node.names)
    listed = [node for node in everything if isinstance(node, ast.Name) and node.id == "__all__"]
    if "__all__" not in found:
        return {name for name in found if not name.startswith("_")}
    match [s for s in tree.body if isinstance(s, ast.Assign) and s.targets == listed]:
        case [ast.Assign(value=ast.List(elts=texts) | ast.Tuple(elts=texts))]:
            names = {text.value for text in texts if isinstance(text, ast.Constant) and text.value in found}
            return names if len(names) == len(texts) else None
    return None


def _at_import(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes of a module that bind names of it: without the insides of functions and classes, and without what a
    comprehension calls its items."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                types = [one.annotation for one in ast.walk(node.args) if isinstance(one, ast.arg)]
                types += [*getattr(node, "decorator_list", ()), getattr(node, "returns", None)]
                waiting += filter(None, [*types, *node.args.defaults, *node.args.kw_defaults])
            case ast.ClassDef():
                waiting += [*node.decorator_list, *node.bases, *(k.value for k in node.keywords)]
            case ast.comprehension():
                waiting += [node.iter, *node.ifs, *(n for n in ast.walk(node.target) if isinstance(n, ast.NamedExpr))]
            case _:
                waiting += ast.iter_child_nodes(node)


def _bound_by_more_than_imports(tree: ast.Module) -> set[str]:
    nodes = (node for node in ast.walk(tree) if not isinstance(node, ast.alias))
    return {name for node in nodes for name in bound_at(node)}


def _imported(tree: ast.Module) -> dict[str, tuple[str, str]]:
    """What a module imports at its top, by the names that nothing else binds: the module that it is from, and its name
    there; "" and the module, where it is one."""
    nodes = list(ast.walk(tree))
    if any(map(_is_star, nodes)):
        return {}
    found: dict[str, list[tuple[str, str]]] = {}
    for statement in tree.body:
        for alias in statement.names if isinstance(statement, ast.Import) else ():
            whole = alias.name if alias.asname else alias.name.partition(".")[0]
            found.setdefault(alias.asname or whole, []).append(("", whole))
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            for alias in statement.names:
                found.setdefault(alias.asname or alias.name, []).append((statement.module, alias.name))
    bound = Counter(name for node in nodes for name in bound_at(node))
    return {
        name: places[0]
        for name, places in found.items()
        if len(places) == bound[name] and places.count(places[0]) == len(places)
    }


def _from_where_it_is(statement: ast.stmt, imported: Mapping[str, Mapping[str, tuple[str, str]]]) -> list[ast.stmt]:
    """An import from another module of the pass without what that has imported from a library, and imports of these
    from the library."""
    if _source(statement) not in imported:
        return [statement]
    left: list[ast.alias] = []
    found: list[ast.stmt] = []
    for alias in statement.names:
        source, name = _source(statement), alias.name
        for _ in range(_MOST_HOPS):
            if name not in imported.get(source, ()):
                break
            source, name = imported[source][name]
            source = source.removeprefix(f"{PACKAGE}.")
        if source in imported:
            left.append(alias)
            continue
        taken = ast.copy_location(ast.alias(name, alias.asname or alias.name), alias)
        made = ast.ImportFrom(source, [taken], 0) if source else ast.Import([taken])
        found.append(ast.copy_location(made, statement))
    statement.names = left
    return [statement, *found] if left else found


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

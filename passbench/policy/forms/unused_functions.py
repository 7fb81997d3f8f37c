"""Functions and classes that nothing in a pass names, such as a reference or a benchmark of its author's: nothing calls
them.

What a function does counts only if it can run. `getattr`, `globals` and their kin are refused, so that a function whose
name occurs nowhere is called by nobody. PassBench calls three functions of a listed module, Python those with special
names. A function that patterns alone name is traced with them and is no host code.
"""

import ast
import copy
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from passbench.policy.nodes import bound_at, written_name

HANDED_TO_PASSBENCH = frozenset("pattern replacement_args replacement_func".split())
_ONLY_RUN_AS_A_SCRIPT = "__main__"
_OF_PROFILERS = "launch_metadata"


class NamesInUse(NamedTuple):
    """Names that host code and kernels of a pass mention, and further ones that patterns do; and the modules of which
    PassBench calls functions."""

    by_host: frozenset[str]
    by_patterns: frozenset[str]
    rules: tuple[str, ...]


def without_launch_metadata(trees: Mapping[str, ast.Module]) -> None:
    """`@triton.jit(launch_metadata=f)` as `@triton.jit()`, in place: Triton calls `f` for hooks of profilers, and a
    worker has none. It stays where a pass may ask a kernel for it."""
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    if any(_OF_PROFILERS in (getattr(node, "attr", ""), getattr(node, "value", "")) for node in nodes):
        return
    for tree in trees.values():
        imported = imported_alone(tree)
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            for call in (d for d in function.decorator_list if isinstance(d, ast.Call)):
                root, dot, rest = written_name(call.func).partition(".")
                if f"{imported.get(root, '')}{dot}{rest}" == "triton.jit":
                    named = [k for k in call.keywords if k.arg == _OF_PROFILERS and isinstance(k.value, ast.Name)]
                    call.keywords = [k for k in call.keywords if k not in named]


def names_in_use(trees: Mapping[str, ast.Module], rules: tuple[str, ...]) -> NamesInUse:
    """Names that the modules of a pass mention where code runs: in functions only if these are named themselves.
    `rules` are the modules whose `pattern` PassBench traces."""
    functions: dict[str, list[ast.FunctionDef | ast.ClassDef]] = {}
    waiting: list[ast.AST] = []
    patterns: list[ast.AST] = []
    for home, tree in trees.items():
        library = _names_of_libraries(tree)
        for statement in tree.body:
            traced = isinstance(statement, ast.FunctionDef) and statement.name == "pattern" and home in rules
            if traced:
                patterns += statement.body
                waiting += [*_outside(statement), *statement.decorator_list]
            elif isinstance(statement, ast.FunctionDef) and statement.name in HANDED_TO_PASSBENCH and home in rules:
                waiting += [*statement.body, *_outside(statement), *statement.decorator_list]
            elif _is_plain_function(statement):
                functions.setdefault(statement.name, []).append(statement)
                waiting += _outside(statement)
            elif _is_plain_class(statement, library):
                functions.setdefault(statement.name, []).append(statement)
                waiting += statement.bases
            else:
                waiting.append(statement)
    by_host = _named_from(waiting, functions)
    return NamesInUse(by_host, _named_from(patterns, functions) - by_host, rules)


def _named_from(waiting: list[ast.AST], functions: dict[str, list[ast.FunctionDef | ast.ClassDef]]) -> frozenset[str]:
    """Names that these nodes mention, and functions and classes that are named there, which are taken out of
    `functions`."""
    found: set[str] = set()
    while waiting:
        node = waiting.pop()
        for name in _named(node) if type(node) in _NAMING else ():
            found.add(name)
            for function in functions.pop(name, ()):
                waiting += function.body
        waiting += ast.iter_child_nodes(node)
    return frozenset(found)


def empty_unused(name: str, tree: ast.Module, used: NamesInUse) -> dict[str, ast.FunctionDef]:
    """Leave out what functions of a module do that have no name in use by the host, in place. What runs when they are
    defined stays: defaults and annotations. Those that patterns name are returned as they were written. Of a class of
    no name in use the bases stay."""
    of_patterns: dict[str, ast.FunctionDef] = {}
    library, in_use = _names_of_libraries(tree), used.by_host | used.by_patterns
    for statement in tree.body:
        if _is_plain_class(statement, library) and statement.name not in in_use:
            _empty(statement)
            statement.is_unused = True
        called = name in used.rules and getattr(statement, "name", "") in HANDED_TO_PASSBENCH
        if not called and _is_plain_function(statement) and statement.name not in used.by_host:
            if statement.name in used.by_patterns:
                of_patterns[statement.name] = copy.copy(statement)
                of_patterns[statement.name].__dict__.pop("_children", None)
            _empty(statement)
    return of_patterns


def _empty(statement: ast.FunctionDef | ast.ClassDef) -> None:
    statement.body = [ast.copy_location(ast.Pass(), statement.body[0])]
    statement.__dict__.pop("_children", None)  # `passbench.policy.nodes` lists anew what is below


def _is_plain_function(node: ast.stmt) -> bool:
    """Whether a statement defines a function without decorators whose name means nothing to Python. It runs where the
    pass calls it by its name, or where PassBench does."""
    return isinstance(node, ast.FunctionDef) and not node.decorator_list and not node.name.startswith("__")


def _names_of_libraries(tree: ast.Module) -> dict[str, str]:
    """Names that a module imports and binds in no other way, with what they stand for, and built-in types that it does
    not bind: in `class A(Module)` an enumeration could be called so, whose members Python makes by `__init__`."""
    if not any(isinstance(s, ast.ClassDef) for s in tree.body):
        return {}
    alone = imported_alone(tree)
    bound = {name for node in ast.walk(tree) for name in bound_at(node)}
    return alone | {name: name for name in _BASES if name not in bound}


def imported_alone(tree: ast.Module) -> dict[str, str]:
    """Names that a module imports and binds in no other way, with what they stand for."""
    found: dict[str, list[str]] = {}
    bound: Counter[str] = Counter()
    for node in ast.walk(tree):  # what is below a node is not kept: functions are left out later
        bound.update(bound_at(node))
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                found.setdefault(alias.asname or first, []).append(alias.name if alias.asname else first)
        elif isinstance(node, ast.ImportFrom):
            source = "." * node.level + (node.module or "")
            for alias in node.names:
                found.setdefault(alias.asname or alias.name, []).append(f"{source}.{alias.name}")
    return {name: full[0] for name, full in found.items() if len({*full}) == 1 and bound[name] == len(full)}


def _is_plain_class(node: ast.stmt, library: Mapping[str, str]) -> bool:
    """Whether a statement defines a class of one of `_BASES`, such as a reference with layers, and does nothing beside
    that: it has methods without decorators, fields that are constants, and no metaclass. `library` says what names of
    the module stand for."""
    if not isinstance(node, ast.ClassDef) or node.decorator_list or node.keywords or node.name.startswith("__"):
        return False
    written = (written_name(base).partition(".") for base in node.bases)
    based = [library.get(first, "") + dot + rest in _BASES for first, dot, rest in written]
    if not based or not all(based) or getattr(node, "type_params", None):
        return False
    for statement in node.body:
        match statement:
            case ast.FunctionDef(decorator_list=[]):
                parts = _outside(statement)
            case ast.Assign(targets=[ast.Name()]):
                parts = [statement.value]
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                parts = []
            case _:
                return False
        if not all(isinstance(part, _PLAIN) for one in parts for part in ast.walk(one)):
            return False
    return True


_BASES = frozenset("torch.nn.Module torch.nn.modules.Module collections.OrderedDict tuple list dict".split())
_PLAIN = ast.arguments | ast.arg | ast.Constant | ast.Tuple | ast.expr_context


def runs_as_a_script(node: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__":` without an else: the module of a pass is imported, never
    run."""
    test = node.test if isinstance(node, ast.If) and not node.orelse else None
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value == _ONLY_RUN_AS_A_SCRIPT
    )


def _outside(function: ast.FunctionDef) -> list[ast.AST]:
    return [function.args, *filter(None, [function.returns]), *getattr(function, "type_params", ())]


def _named(node: ast.AST) -> list[str]:
    """Names that a node has, by whatever road they lead to a function: `from shared import f as g` names f."""
    match node:
        case ast.Name():
            return [node.id]
        case ast.Attribute():
            return [node.attr]
        case ast.alias():
            return [node.name.rpartition(".")[2]]
        case ast.Global() | ast.Nonlocal():
            return node.names
        case ast.Constant(value=str()):
            return [node.value]  # `getattr(shared, "f")`
        case ast.FunctionDef() | ast.ClassDef():
            return [node.name]  # bound once more, somewhere
    return []


_NAMING = frozenset(
    (ast.Name, ast.Attribute, ast.alias, ast.Global, ast.Nonlocal, ast.Constant, ast.FunctionDef, ast.ClassDef)
)
"""Nodes of which `_named` knows a name."""

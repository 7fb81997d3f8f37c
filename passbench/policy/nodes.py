"""The nodes of a syntax tree. The policy looks at each some twenty times, so that its children are listed once."""

import ast
import re
from collections import Counter

_NAMING = ("name", "arg", "rest")
"""Fields that hold the name which a node binds."""
_NO_CHILDREN = frozenset({"ctx", "id", "attr", "arg", "kind", "asname", "module", "level", "type_comment"})
"""Fields that hold a context, or no node at all."""
_MOST_BITS = 4096
"""Of a whole number that is written out. `str` of one of more than 4,300 digits is an error."""
_LONG_NUMBER = re.compile(rf"(?<![0-9a-fA-F_])[0-9a-fA-F_]{{{_MOST_BITS // 4}}}")
"""A number of more bits has at least so many digits: a hexadecimal one holds four bits, a decimal one fewer. Each row
of digits is tried from its beginning alone, so that the search takes no longer than the text is."""


def children(node: ast.AST) -> list[ast.AST]:
    """What `ast.iter_child_nodes` yields, without the contexts (`ast.Load`), which have none: they are a third of all
    nodes. A module's statements may change, no other node may."""
    try:
        return node._children
    except AttributeError:
        kind, found = type(node), []
        if kind not in _child_fields:
            _child_fields[kind] = [field for field in kind._fields if field not in _NO_CHILDREN]
        for name in _child_fields[kind]:
            value = getattr(node, name, None)
            if type(value) is list:
                found += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST):
                found.append(value)
        if not isinstance(node, ast.Module):
            node._children = found
        return found


_child_fields: dict[type[ast.AST], list[str]] = {}


def names_by_place(function: ast.FunctionDef | ast.Lambda) -> list[str]:
    """The names of the parameters that a call may give by their place, in order."""
    return [a.arg for a in (*function.args.posonlyargs, *function.args.args)]


def written_name(node: ast.AST) -> str:
    """`a.b` as a text; "" for what is no name and no chain of attributes, so that no long text is made."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


_MOST_QUOTED = 40
"""Nodes of an expression that a finding quotes. Each within another may have a finding of its own."""
_MOST_LETTERS = 80


def quoted(node: ast.AST) -> str:
    """An expression as a finding quotes it, made once; of a long one its beginning, or a word for it."""
    if not hasattr(node, "_quoted"):
        if len(_first(node, _MOST_QUOTED + 1)) <= _MOST_QUOTED:
            node._quoted = ast.unparse(node)[:_MOST_LETTERS]
        else:
            node._quoted = f"{quoted(node.func)}(…)" if isinstance(node, ast.Call) else "a long expression"
    return node._quoted


def _first(node: ast.AST, most: int) -> list[ast.AST]:
    """The first nodes that `walk` yields, and some behind them."""
    found = [node]
    for one in found:  # grows meanwhile
        if len(found) > most:
            break
        found += children(one)[:most]
    return found


def placed(made: ast.AST, place: ast.AST) -> ast.AST:
    """An expression or a statement whose new nodes stand where another does; what is in it already stays where it is,
    and is not walked through."""
    waiting = [made]
    while waiting:
        node = waiting.pop()
        if getattr(node, "lineno", None) is None:
            ast.copy_location(node, place)
            waiting += ast.iter_child_nodes(node)
    return made


def assigned_by(statement: ast.stmt) -> list[ast.expr]:
    """What an assignment binds, also one with an annotation; nothing of any other statement."""
    if isinstance(statement, ast.AnnAssign):
        return [statement.target]
    return statement.targets if isinstance(statement, ast.Assign) else []


def bound_by(statement: ast.stmt) -> list[str]:
    """Names that a statement of a module or class binds there, each as often as it does."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    return [n.id for n in walk(statement) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)]


def bound_names(place: ast.Module | ast.FunctionDef) -> Counter[str]:
    """How often each name is bound anywhere in a module or function; one that `global` mentions, once more."""
    found: list[str] = []
    for node in walk(place):
        found += bound_at(node)
    return Counter(found)


def bound_at(node: ast.AST) -> list[str]:
    """The names that a node binds by itself, or mentions as `global` or `nonlocal`."""
    kind = type(node)
    if kind is ast.Name:
        return [node.id] if type(node.ctx) is not ast.Load else []
    if kind is ast.Global or kind is ast.Nonlocal:
        return node.names
    if kind is ast.alias:
        return [node.asname or node.name.partition(".")[0]]
    return names_of(node) if kind is not ast.keyword else []


def names_of(node: ast.AST) -> list[str]:
    """The names in fields that hold a name which the node binds; of a keyword argument, the parameter's."""
    kind = type(node)
    if kind not in _naming_fields:
        _naming_fields[kind] = [field for field in _NAMING if field in kind._fields]
    return [name for field in _naming_fields[kind] if isinstance(name := getattr(node, field, None), str)]


_naming_fields: dict[type[ast.AST], list[str]] = {}


def walk(node: ast.AST) -> list[ast.AST]:
    """What `ast.walk` yields, without contexts: the node and all below it, those nearer to it first."""
    found = [node]
    for one in found:  # grows meanwhile
        try:
            found += one._children
        except AttributeError:
            found += children(one)
    return found


def long_number(text: str, tree: ast.Module) -> ast.Constant | None:
    """The first whole number of more than `_MOST_BITS` bits in the tree of a text, None if there is none: a finding
    could not quote it. The tree is walked through only where the text has so many digits in a row; the walk is
    `ast.walk`, which keeps no children: steps behind this one replace nodes."""
    if _LONG_NUMBER.search(text) is None:
        return None
    numbers = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) is int)
    return next((node for node in numbers if node.value.bit_length() > _MOST_BITS), None)

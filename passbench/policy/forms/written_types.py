"""What types are made of that are written out, and where a data class keeps them."""

import ast
import builtins
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping

from passbench.policy import allowlists as names
from passbench.policy.nodes import bound_names, children, quoted, walk

Dotted = Callable[[ast.expr], str | None]
_PARTS = (
    ast.Name, ast.Attribute, ast.Constant, ast.Subscript, ast.Tuple, ast.List, ast.BinOp, ast.BitOr, ast.Load,
    ast.UnaryOp, ast.USub,
)  # fmt: skip


def fault_of_type(node: ast.expr, is_value: Callable[[ast.expr, ast.expr], bool]) -> str:
    """What is wrong with a type; "" if nothing is. `is_value` says of a name or a chain of attributes, and of the name
    that it starts at, whether it is a value of the pass and none of its classes.

    A type may name anything, such as a built-in that runs text. So no dict and no instance of the pass gets any of it:
    `TABLE[exec]` of a `defaultdict` puts the function into the table, and so does `[TABLE][0][exec]`.
    """
    for part in walk(node):
        private = isinstance(part, ast.Attribute) and part.attr.startswith("_")
        if not isinstance(part, _PARTS) or private:
            return "an annotation names a type; it computes nothing"
        before = part.value if isinstance(part, ast.Subscript | ast.Attribute) else None
        while isinstance(before, ast.Attribute):
            before = before.value
        if before is not None and not isinstance(before, ast.Name):
            return f"{quoted(part)}: in a type, brackets and dots stand behind a name alone"
        if isinstance(part, ast.Subscript) and is_value(part.value, before):
            return f"{quoted(part.value)} is no type; in a type, brackets stand behind a class alone"
    return ""


def may_be_no_field(node: ast.expr, full_name: Callable[[ast.expr], str | None]) -> bool:
    """Whether a data class may take what has this type for something else than a field that its instances are made
    with: `ClassVar[int]`, `KW_ONLY`, by whatever name, in a text too. `full_name` says what a name or a chain of
    attributes stands for, None of what may be anything."""
    waiting: list[ast.AST] = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            if not (found := _FIRST_NAME.match(part.value)):
                return True
            part = ast.Name(found[2], ast.Load())
            if found[1]:
                part = ast.Attribute(ast.Name(found[1], ast.Load()), found[2], ast.Load())
        if isinstance(part, ast.Name | ast.Attribute):
            known = full_name(part)
            if known is None or known.rpartition(".")[2] in _NO_FIELDS:
                return True
        else:
            waiting += children(part)
    return False


_NO_FIELDS = frozenset("ClassVar KW_ONLY InitVar".split())
_FIRST_NAME = re.compile(r"\s*(?:(\w+)\s*\.)?\s*(\w+)")
"""What a data class looks at of a type that is a text."""


def attributes_in_type(node: ast.expr) -> Iterator[tuple[ast.Attribute, ast.expr]]:
    """The whole attribute chains in a type, each with what it starts at: `typing.Dict` and `shared.Plan` of
    `typing.Dict[str, shared.Plan]`."""
    waiting: list[ast.AST] = [node]
    while waiting:
        part = root = waiting.pop()
        while isinstance(root, ast.Attribute):
            root = root.value
        if root is not part:
            yield part, root
        else:
            waiting += children(part)


def stray_fields(tree: ast.Module, dotted: Dotted) -> Iterator[ast.Call]:
    """`dataclasses.field(…)` where it is not the whole value of an annotated field of a data class. It has the type as
    its `type`, so that `field.type` of `x: os.system = field` would be the function."""
    described: set[ast.expr | None] = set()
    for own in (s for s in tree.body if isinstance(s, ast.ClassDef)):
        targets = (d.func if isinstance(d, ast.Call) else d for d in own.decorator_list)
        if any(dotted(target) == "dataclasses.dataclass" for target in targets):
            described |= {s.value for s in own.body if isinstance(s, ast.AnnAssign)}
    for node in walk(tree):
        if isinstance(node, ast.Call) and node not in described and dotted(node.func) == "dataclasses.field":
            yield node


def stray_types(tree: ast.Module) -> Iterator[ast.AnnAssign]:
    """`TABLE[KEYS[f]]: int`, a type of what is no plain name, without a value: it binds nothing, but Python evaluates
    `KEYS[f]`."""
    for node in walk(tree):
        if isinstance(node, ast.AnnAssign) and node.value is None and not isinstance(node.target, ast.Name):
            yield node


def stray_type_variables(
    trees: Mapping[str, ast.Module], dotted: Mapping[str, Dotted]
) -> Iterator[tuple[str, ast.expr]]:
    """Type variables that are more than parts of a type, each with its module: `typing.TypeVar(…)` that is not the
    value of a variable of the module, and the use of such a variable outside of brackets that keep what they get.

    `typing.Union[T, S][*tuple[exec, exec]]` is `exec`: Python puts in what it gets, and a union of one is that one.
    """
    variables: set[str] = set()
    made: set[ast.expr] = set()
    for name, tree in trees.items():
        for statement in tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=target)], value=ast.Call() as call):
                    if dotted[name](call.func) in names.TYPE_VARIABLES:
                        variables.add(f"{name}.{target}")
                        made.add(call)
    for name, tree in trees.items():
        waiting: list[ast.AST] = [tree]
        bound = bound_names(tree)
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Call) and node not in made and dotted[name](node.func) in names.TYPE_VARIABLES:
                yield name, node
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
                full = dotted[name](node) or (f"{name}.{node.id}" if isinstance(node, ast.Name) else "")
                if full in variables:
                    yield name, node
            typed = {getattr(node, "annotation", None), getattr(node, "returns", None)}
            if isinstance(node, ast.Subscript) and _keeps_types(node.value, dotted[name], bound):
                typed.add(node.slice)
            waiting += [child for child in children(node) if child not in typed]


def _keeps_types(node: ast.expr, dotted: Dotted, bound: Collection[str]) -> bool:
    """Whether brackets behind an expression make a type that is none of those within: not of a union, which may be one
    of them, nor of `Concatenate`, which may be a tuple of them."""
    full = dotted(node)
    if full is None:
        return isinstance(node, ast.Name) and node.id in ("list", "tuple", "dict") and node.id not in bound
    return full in names.TYPE_FORMS and full.rpartition(".")[2] not in ("Union", "Concatenate", "Unpack")


def kept_types(tree: ast.AST, bound: Collection[str]) -> Iterator[ast.Compare]:
    """`type(x) in KINDS`, where an instance of the pass may keep what it is asked for: of `type(CLASS)`, which makes
    classes with any members. What is written out, as in `type(x) in (int, float)`, keeps nothing."""
    for node in walk(tree):
        if not isinstance(node, ast.Compare):
            continue
        for op, left, right in zip(node.ops, (node.left, *node.comparators), node.comparators, strict=False):
            displayed = isinstance(right, ast.Tuple | ast.List | ast.Set)
            if isinstance(op, ast.In | ast.NotIn) and not displayed and _holds_type(left, bound):
                yield node


def _holds_type(node: ast.expr, bound: Collection[str]) -> bool:
    """Whether a side of a comparison is a type, as far as one may stand there, or a collection with one."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return any(_holds_type(part, bound) for part in node.elts)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "type"
    return isinstance(node, ast.Name) and node.id in names.TYPES and node.id not in bound


def stray_functions(tree: ast.AST, dotted: Dotted, bound: Collection[str]) -> Iterator[ast.Name | ast.Attribute]:
    """Functions and modules in a type that is a value, such as `exec` in `Z[*typing.Tuple[exec]]`, and `os.system`: a
    type that is a part of another one may come out of it again."""
    waiting = [(tree, False)]
    while waiting:
        node, within = waiting.pop()
        if within and isinstance(node, ast.Name | ast.Attribute) and (full := dotted(node)) is not None:
            if full.partition(".")[0] in sys.stdlib_module_names | _LIBRARIES and not _may_be_type(full):
                yield node
            continue
        if within and isinstance(node, ast.Name) and node.id not in bound and _is_function(node.id):
            yield node
        aside = {getattr(node, "annotation", None), getattr(node, "returns", None)}
        typed = isinstance(node, ast.Subscript) and (
            dotted(node.value) in names.TYPE_FORMS or getattr(node.value, "id", "") in ("list", "tuple", "dict")
        )
        waiting += [(child, within or typed) for child in children(node) if child not in aside]


def _is_function(name: str) -> bool:
    found = getattr(builtins, name, None)
    return callable(found) and name not in names.TYPES_IN_UNIONS and not _is_error(found)


def _may_be_type(name: str) -> bool:
    """Whether a name of a library is a type: those that a pass writes, and what is written as classes are."""
    last = name.rpartition(".")[2]
    return name in _KNOWN_TYPES or (last[0].isupper() and "." in name)


_LIBRARIES = frozenset("torch triton numpy passbench typing_extensions".split())
_KNOWN_TYPES = frozenset(
    """numpy.ndarray numpy.dtype collections.deque collections.defaultdict triton.language.constexpr
    triton.language.tensor triton.language.dtype triton.language.core.constexpr triton.language.core.tensor
    triton.language.core.dtype functools.partial""".split()
) | names.TYPES | names.HOST_VALUES | names.TYPE_FORMS | names.NUMBERS  # fmt: skip


def _is_error(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, BaseException)

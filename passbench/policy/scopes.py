"""Scopes of host code and what their variables can be, for the static policy."""

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum

from passbench.policy.allowlists import COLLECTING_CALLS
from passbench.policy.modules import Module
from passbench.policy.nodes import assigned_by, bound_at, bound_names, children, walk

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class ValueKind(IntEnum):
    """What the value of an expression can be, in the order of what it may hold. Of two possible kinds `joined` is to
    be assumed."""

    SCALAR = 0  # no tensor, and none inside
    COMPUTED = 1  # what arithmetic makes of EITHER: a number, or a tensor whose memory the pass has made
    EITHER = 2  # a parameter of a replacement that may be a number or a tensor
    ADDRESS = 3  # what has an address in its text, as a function has, or a container of such; beside that it is EITHER
    HOLDER = 4  # a container that may hold tensors
    OWN = 5  # a tensor whose memory the pass has made in this function
    OWN_OR_HELD = 6  # such a tensor, or a container that may hold others
    TENSOR = 7

    def item(self) -> "ValueKind":
        """The kind of an element, got by subscript or iteration. Arithmetic makes lists of lists, too: `[x] + [y]`."""
        if self is ValueKind.COMPUTED:
            return ValueKind.EITHER
        return ValueKind.TENSOR if self.holds_tensors else self

    @property
    def is_tensor(self) -> bool:
        return self >= ValueKind.OWN

    @property
    def is_made(self) -> bool:
        """A tensor of the pass's own, as far as it is a tensor."""
        return self in (ValueKind.OWN, ValueKind.OWN_OR_HELD)

    @property
    def is_either(self) -> bool:
        return self in (ValueKind.COMPUTED, ValueKind.EITHER, ValueKind.ADDRESS)

    @property
    def holds_tensors(self) -> bool:
        """A tensor, or something with tensors inside."""
        return self >= ValueKind.HOLDER


def joined(kinds: Iterable[ValueKind]) -> ValueKind:
    """The kind of what may be each of these; SCALAR of none. It is the pass's own tensor only if all of it is that or
    no tensor: what may be an input beside that is no more than a tensor."""
    found = set(kinds)
    largest = max(found, default=ValueKind.SCALAR)
    if largest.is_made and not found.isdisjoint((ValueKind.EITHER, ValueKind.ADDRESS)):
        return ValueKind.TENSOR
    if largest is ValueKind.HOLDER and ValueKind.EITHER in found:
        return ValueKind.TENSOR
    held = largest is ValueKind.OWN and ValueKind.HOLDER in found
    return ValueKind.OWN_OR_HELD if held else largest


class Kinds:
    """The kind of every variable, parameter and function result. A kind never becomes smaller."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[object, str | int], ValueKind] = {}
        self._names: dict[object, list[str | int]] = {}
        self._given: set[tuple[object, str | int, ValueKind | None]] = set()  # None: what is not surely single
        self.changed = False

    def get(self, scope: object, name: str | int) -> ValueKind:
        """What is known so far; SCALAR for what is never assigned."""
        return self._kinds.get((scope, name), ValueKind.SCALAR)

    def holds_tensors(self, scope: object) -> bool:
        """Whether anything of a scope may hold tensors."""
        return any(kind.holds_tensors for _, kind in self.items_of(scope))

    def items_of(self, scope: object) -> list[tuple[str | int, ValueKind]]:
        """The names and kinds of everything of a scope."""
        return [(name, self._kinds[scope, name]) for name in self._names.get(scope, ())]

    def __contains__(self, place: tuple[object, str | int]) -> bool:
        return place in self._kinds

    def is_single(self, scope: object, *names: str | int) -> bool:
        """Whether all that these variables are given is single, as far as is known."""
        return all((scope, name, None) not in self._given for name in names)

    def was(self, kind: ValueKind, scope: object, name: str | int) -> bool:
        """Whether the variable has been given a value of this kind, whatever else it has been given."""
        return (scope, name, kind) in self._given

    def join(
        self, scope: object, name: str | int, kind: ValueKind, *, single: bool = False, shown: bool = True
    ) -> None:
        """Note that the variable is given a value of this kind, too. `single`: it is surely no list, tuple or text, nor
        anything else that Python indexes by a number, a tensor aside. Without `shown` the kind is assumed of what a
        library may give, and `was` does not know of it."""
        given = {(scope, name, kind if shown else ValueKind.SCALAR), (scope, name, kind if single else None)}
        if not given <= self._given:
            self._given |= given
            self.changed = True
        if (scope, name) not in self._kinds:
            self._names.setdefault(scope, []).append(name)
        before = self._kinds.setdefault((scope, name), ValueKind.SCALAR)
        if (both := joined((before, kind))) > before:
            self._kinds[scope, name] = both
            self.changed = True


ITEM_OF_RETURN = "return[{}]"
"""The name under which `Kinds` keeps one item of the tuples that a function returns."""
RETURN = "return"
"""The name under which `Kinds` keeps a function's result; no variable can be called so."""
KEYS = "{}{{}}"
"""The name under which `Kinds` keeps what is put as a key into a dict of this name (`flow.kept_tables`)."""
ITEMS = "self[:]"
"""The name under which `Kinds` keeps what the instance of a method holds as a tuple."""


@dataclass
class Scope:
    """A module, function, lambda or comprehension, or the fields of a class as its own statements see them.

    `functions`: host functions defined in it. `lambdas`: variables that are lambdas. `clashes`: functions and classes
    whose name is bound twice. `hook`: Triton calls it. `self_name`: in a method of a class of the pass, the parameter
    that is the instance. `made_by`: in a class method, the parameter that is the class, and this class. `context`: in
    `forward` and `backward` of a `torch.autograd.Function`, the parameter that is the context. `of_module`: names that
    `global` makes the module's. `caught`: names of errors that are caught in it. `assigned`: names that assignments and
    loops bind.
    """

    module: Module
    node: ast.Module | ast.FunctionDef | ast.Lambda | ast.ClassDef | Comprehension
    parent: "Scope | None" = None
    names: set[str] = field(default_factory=set)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    lambdas: dict[str, list[ast.Lambda]] = field(default_factory=dict)
    clashes: list[ast.FunctionDef | ast.ClassDef] = field(default_factory=list)
    hook: bool = False
    self_name: str | None = None
    made_by: tuple[str, ast.ClassDef] | None = None
    context: str | None = None
    of_module: set[str] = field(default_factory=set)
    caught: set[str] = field(default_factory=set)
    assigned: set[str] = field(default_factory=set)

    def find(self, name: str) -> "Scope | None":
        """The scope that a name belongs to, None if it is no variable of the module."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.of_module:
                while scope.parent is not None:
                    scope = scope.parent
                return scope if name in scope.names else None
            if name in scope.names:
                return scope
            scope = scope.parent
        return None

    @property
    def function(self) -> "Scope":
        """The scope of the innermost function or module around."""
        scope = self
        while isinstance(scope.node, COMPREHENSIONS):
            scope = scope.parent
        return scope


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes that run in the scope of `node`.

    Of a function or lambda within, only decorators and defaults do. Of a class, its decorators and bases do. Of a
    comprehension, all but the targets of its loops do.
    """
    waiting = (node.body if isinstance(node, ast.FunctionDef) else children(node))[::-1]
    while waiting:
        child = waiting.pop()
        yield child
        kind = type(child)
        if kind in _FUNCTIONS:
            outer = [*child.args.defaults, *(d for d in child.args.kw_defaults if d is not None)]
            waiting += [*outer, *getattr(child, "decorator_list", [])][::-1]
        elif kind is ast.comprehension:
            waiting += [child.iter, *child.ifs][::-1]
        elif kind is ast.ClassDef:
            waiting += [*child.decorator_list, *child.bases, *child.keywords][::-1]
        else:
            waiting += children(child)[::-1]


_FUNCTIONS = frozenset((ast.FunctionDef, ast.Lambda, ast.AsyncFunctionDef))


def open_scope(
    module: Module,
    node: ast.Module | ast.FunctionDef | ast.Lambda | Comprehension,
    parent: Scope | None,
    *,
    hook: bool = False,
) -> Scope:
    """The scope of a module, function, lambda or comprehension with the names that it binds."""
    scope = Scope(module, node, parent, hook=hook)
    if isinstance(node, COMPREHENSIONS):
        targets = [n for g in node.generators for n in walk(g.target)]
        scope.names |= {n.id for n in targets if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        return scope
    shared: set[str] = set()
    defined = {a.arg for a in parameters(node)} if not isinstance(node, ast.Module) else set()
    scope.names |= defined
    for child in own_nodes(node):
        if type(child) not in _NAMING:
            continue
        if isinstance(child, ast.Global | ast.Nonlocal):
            shared |= set(child.names)
            scope.of_module |= set(child.names) if isinstance(child, ast.Global) else set()
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            scope.names.add(child.id)
            scope.assigned.add(child.id)
        elif isinstance(child, ast.MatchAs | ast.MatchStar) and child.name:
            scope.names.add(child.name)
            scope.assigned.add(child.name)
        elif isinstance(child, ast.ExceptHandler):
            scope.names |= {child.name} if child.name else set()
            scope.caught |= {child.name} if child.name else set()
        elif isinstance(child, ast.FunctionDef | ast.ClassDef):
            if child.name in defined:
                scope.clashes.append(child)
            defined.add(child.name)
            scope.names.add(child.name)
            if isinstance(child, ast.FunctionDef) and child.name not in module.kernels:
                scope.functions[child.name] = child
        elif isinstance(child, ast.Assign) and isinstance(child.value, ast.Lambda):
            for target in child.targets:
                if isinstance(target, ast.Name):
                    scope.lambdas.setdefault(target.id, []).append(child.value)
    scope.names -= shared
    for name in shared:
        scope.lambdas.pop(name, None)
    return scope


_NAMING = frozenset(
    (
        *(ast.Global, ast.Nonlocal, ast.Name, ast.MatchAs, ast.MatchStar, ast.ExceptHandler),
        *(ast.FunctionDef, ast.ClassDef, ast.Assign),
    )
)
"""Nodes that say something of a scope's names."""


def returns_only(function: ast.FunctionDef, name: str) -> bool:
    """Whether a function returns this variable, which it binds once, and hands out nothing else."""
    own = list(own_nodes(function))
    returned = [n.value for n in own if isinstance(n, ast.Return)]
    itself = all(isinstance(value, ast.Name) and value.id == name for value in returned)
    lazy = any(isinstance(n, ast.Yield | ast.YieldFrom) for n in own)
    return bool(returned) and itself and not lazy and bound_names(function)[name] == 1


def hands_back(function: ast.FunctionDef, *, called: bool) -> bool:
    """Whether a function returns its first argument, whatever it returns; `called`: a function that it defines does,
    and it returns that one."""
    order = [*function.args.posonlyargs, *function.args.args]
    inner = [s for s in function.body if isinstance(s, ast.FunctionDef)]
    name = next((s.name for s in inner), "") if called else next((a.arg for a in order), "")
    if function.decorator_list or not returns_only(function, name):
        return False
    return not called or (len(inner) == 1 and hands_back(inner[0], called=False))


def length_of_returns(node: ast.FunctionDef) -> int | None:
    """How many items the tuples have that a function returns, if each is written out and has as many; None if not."""
    if not hasattr(node, "_returned"):
        values = [n.value for n in own_nodes(node) if isinstance(n, ast.Return)]
        plain = all(isinstance(v, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in v.elts) for v in values)
        lengths = {len(v.elts) for v in values} if plain else set()
        node._returned = lengths.pop() if len(lengths) == 1 else None
    return node._returned


def defaults(node: ast.FunctionDef | ast.Lambda) -> list[tuple[ast.arg, ast.expr]]:
    """Parameters that have a default, with it."""
    a = node.args
    positional = [*a.posonlyargs, *a.args]
    ends = list(zip(positional[::-1], a.defaults[::-1], strict=False))
    return [*ends, *((p, d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None)]


def parameters(node: ast.FunctionDef | ast.Lambda) -> list[ast.arg]:
    """All parameters, starred ones last."""
    a = node.args
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *(x for x in (a.vararg, a.kwarg) if x is not None)]


def owned_values(place: ast.AST, name: str) -> list[ast.expr]:
    """All that is assigned to a variable of a module or function; empty if it is bound in another way, too."""
    if not isinstance(place, ast.Module | ast.FunctionDef) or name in {
        p.arg for p in (parameters(place) if isinstance(place, ast.FunctionDef) else ())
    }:
        return []
    if any(name in node.names for node in walk(place) if isinstance(node, ast.Nonlocal)):
        return []
    values: dict[ast.Name, ast.expr] = {}
    bound: list[ast.Name] = []
    for node in own_nodes(place):
        if isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load):
            bound.append(node)
        elif not isinstance(node, ast.Name) and name in bound_at(node):  # by a definition, a handler or a case
            return []
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            values |= {t: node.value for t in targets if isinstance(t, ast.Name) and t.id == name}
    return list(values.values()) if values.keys() == set(bound) else []


def made_once(
    place: ast.Module | ast.FunctionDef, class_of: Callable[[ast.expr], ast.ClassDef | None]
) -> dict[str, ast.ClassDef]:
    """Variables that are bound once in a module or a function, by an assignment of what `class_of` knows for an
    instance of a class, and their classes.

    A name that is bound in a function inside counts, too: it may be this one.
    """
    bound: Counter[str] = Counter()
    values: dict[str, ast.expr] = {}
    for node in walk(place):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound[node.id] += 1
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            bound.update(p.arg for p in parameters(node))
        for key in ("name", "asname", "rest"):
            if isinstance(name := getattr(node, key, None), str):
                bound[name.partition(".")[0]] += 1
        targets = assigned_by(node)
        if len(targets) == 1 and isinstance(targets[0], ast.Name) and isinstance(node.value, ast.Call):
            values[targets[0].id] = node.value
    made = ((name, class_of(value)) for name, value in values.items() if bound[name] == 1)
    return {name: own for name, own in made if own is not None}


def built_in_called(node: ast.Call, scope: Scope) -> str:
    """The built-in that a call names; "" where it names none, or a variable has that name."""
    return node.func.id if isinstance(node.func, ast.Name) and scope.find(node.func.id) is None else ""


def makes_iterator(value: ast.expr, scope: Scope) -> bool:
    """Whether an expression makes an object that hands out items one by one, or one to be called: its text has an
    address, its items need have none."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return built_in_called(value, scope) in _ITERATORS
    dotted = scope.module.dotted(value.func) if isinstance(value, ast.Call) else None
    lazy = dotted is not None and (dotted == "functools.partial" or dotted.startswith("itertools."))
    return lazy or isinstance(value, ast.GeneratorExp)


def makes_sequence(value: ast.expr, scope: Scope) -> bool:
    """Whether an expression makes a list, a tuple or a text: a product with a number repeats it."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return built_in_called(value, scope) in _SEQUENCES
    if isinstance(value, ast.Call):
        if scope.module.dotted(value.func) in _MAKING_SEQUENCES:
            return True
        method = value.func.attr if isinstance(value.func, ast.Attribute) else ""
        return method in _TEXTS or (method in ("size", "stride") and not value.args and not value.keywords)
    if isinstance(value, ast.BinOp):
        return makes_sequence(value.left, scope) or makes_sequence(value.right, scope)
    if isinstance(value, ast.Subscript):
        return isinstance(value.slice, ast.Slice) and makes_sequence(value.value, scope)
    if isinstance(value, ast.Attribute):
        return value.attr in ("shape", "__name__") or scope.module.dotted(value) in _VERSIONS
    text = isinstance(value, ast.Constant) and isinstance(value.value, str | bytes)
    return text or isinstance(value, ast.List | ast.Tuple | ast.ListComp | ast.JoinedStr)


def makes_anew(value: ast.expr, scope: Scope) -> bool:
    """Whether the value of an expression has just been made, so that no other variable holds it."""
    if isinstance(value, ast.Call):
        built_in = built_in_called(value, scope) in ("list", "dict", "set", "tuple")
        return built_in or scope.module.dotted(value.func) in COLLECTING_CALLS - _NOT_NEW
    displays = ast.List | ast.Dict | ast.Set | ast.Tuple | ast.ListComp | ast.DictComp | ast.SetComp
    return isinstance(value, displays | ast.Constant | ast.BinOp)


_NOT_NEW = frozenset(("functools.reduce", "collections.ChainMap"))
"""Of those that collect, the ones that give back what they got, or write to it."""
_ITERATORS = frozenset("map filter zip enumerate reversed iter".split())
_SEQUENCES = frozenset("list tuple str repr sorted".split())
_TEXTS = frozenset(
    """join lower upper strip lstrip rstrip removeprefix removesuffix replace title capitalize format split rsplit
    splitlines partition rpartition""".split()
)
_MAKING_SEQUENCES = frozenset("collections.deque torch.Size torch.broadcast_shapes".split())
_VERSIONS = frozenset("torch.__version__ torch.version.cuda torch.version.hip triton.__version__".split())

"""What variables, fields and expressions of host code can hold (`passbench.policy.flow.value_flow`)."""

import ast
from collections.abc import Iterable
from typing import Any, Protocol

import torch

from passbench.policy import allowlists as names
from passbench.policy.flow.class_parts import decorator_names, is_property, members_of
from passbench.policy.flow.groups import GivenGroups, Groups, Instance, Signature
from passbench.policy.flow.written_tables import tables_of_rows
from passbench.policy.modules import Module
from passbench.policy.nodes import children, written_name
from passbench.policy.scopes import COMPREHENSIONS, RETURN, Scope, defaults, open_scope
from passbench.policy.steps import Steps

ANYTHING = Groups.ANYTHING
_FIELD = "field"
_KNOWN_DECORATORS = (names.HOST_DECORATORS | names.METHOD_DECORATORS) - {"contextlib.contextmanager"}
_OBJECTS = (torch.Tensor, torch.device, torch.dtype, list, dict, tuple, set, str, int, float)
_WITHOUT_FUNCTIONS = frozenset(
    name
    for name in names.TENSOR_ATTRIBUTES | names.VIEW_ATTRIBUTES | names.SCALAR_ATTRIBUTES - {"value"}
    if not any(callable(getattr(kind, name, None)) for kind in _OBJECTS)
)
"""Attributes of objects of libraries that are no functions, whatever object it is."""
_OF_NUMBERS = ast.Div | ast.FloorDiv | ast.Mod | ast.Pow | ast.LShift | ast.RShift | ast.MatMult
"""Operators whose results are no containers."""


class PassNames(Protocol):
    """What the flow asks of the checker of host code (`passbench.policy.host.named_values`)."""

    modules: dict[str, Module]
    scopes: dict[str, Scope]
    steps: Steps
    class_homes: dict[ast.ClassDef, Module]
    kernel_homes: dict[ast.FunctionDef, Module]
    stored_names: frozenset[str]
    fields: frozenset[str]
    known: Any
    """`passbench.policy.flow.known_instances.KnownInstances`."""

    def host_function(self, node: ast.expr, scope: Scope) -> ast.FunctionDef | None:
        """The function that an expression names."""

    def own_class(self, node: ast.expr, scope: Scope) -> ast.ClassDef | None:
        """The class that an expression names."""

    def derived(self, own: ast.ClassDef) -> list[ast.ClassDef]:
        """A class and those that derive from it."""

    def lineage(self, own: ast.ClassDef) -> list[ast.ClassDef]:
        """A class and those that it derives from, in Python's order."""

    def methods_of(self, own: ast.ClassDef, name: str) -> tuple[ast.FunctionDef, ...]:
        """The methods of a name that instances have."""

    def facts(self, own: ast.ClassDef) -> Any:
        """`passbench.policy.host.classes.ClassFacts`."""

    def bases_of(self, classes: Iterable[ast.ClassDef]) -> set[str]:
        """What classes derive from, by full names."""


class Values:
    """Follows expressions, and what is bound to names, fields and items."""

    def __init__(self, pass_: PassNames) -> None:
        self._pass = pass_
        self.groups = Groups(pass_.steps)
        self._ordered: dict[ast.ClassDef, bool] = {}  # whether a class takes its fields in order
        self.called: dict[ast.Call, int] = {}
        self.bases: dict[ast.Attribute, int] = {}
        self.handed: dict[ast.expr, int | None] = {}  # what libraries get, and may call
        self.indices: dict[ast.Subscript, int | None] = {}  # what is indexed → by what, if that may be a grid
        self.indexed: dict[ast.Subscript, int | None] = {}
        self.noted: set[ast.AST] = set()  # where functions are values
        self.given_to_torch: list[int | None] = []  # what operators and methods of tensors get
        self._instances: dict[ast.AST, set[str]] = {}  # method → its parameter that is the instance
        self._made_by: dict[ast.AST, tuple[str, ast.ClassDef]] = {}  # class method → its parameter that is the class
        self._classes: dict[ast.AST, ast.ClassDef] = {}  # method of instances → its class
        self._is_lost = False
        self._columns = tables_of_rows(pass_.modules)
        self._methods: dict[str, list[ast.FunctionDef]] = {}
        self._by_name: dict[str, Signature] = {}
        self._handed: dict[str, int] = {}  # methods that are read off something
        self._fields: set[str] = set()
        for own in pass_.class_homes:
            self._fields |= {name for _, name in members_of(own)}
            for s in own.body:
                if isinstance(s, ast.FunctionDef):
                    self._methods.setdefault(s.name, []).append(s)

    def _outside(self, node: ast.FunctionDef | ast.Lambda, scope: Scope) -> None:
        """What runs where a function is made: its defaults and, of a kernel, what is given to its decorators, which
        Triton calls."""
        for parameter, default in defaults(node):
            self.groups.join(self.groups.place(node, parameter.arg), self._value(default, scope))
        for decorator in getattr(node, "decorator_list", ()):
            if isinstance(decorator, ast.Call):
                for part in (*decorator.args, *(k.value for k in decorator.keywords)):
                    given = self._value(part, scope)
                    if scope.module.dotted(decorator.func) != names.WRAPS:
                        self.groups.join(ANYTHING, given)

    def _field(self, name: str) -> int:
        return self.groups.place(_FIELD, name)

    def _variable(self, name: str, scope: Scope) -> int:
        owner = scope.find(name) or self._pass.scopes[scope.module.name]
        if isinstance(owner.node, ast.ClassDef):
            return self._field(name)
        return self.groups.place(owner.node, name)

    def _bind(self, target: ast.expr, value: int | None, scope: Scope) -> None:
        match target:
            case ast.Name():
                if value is not None:
                    self.groups.join(self._variable(target.id, scope), value)
            case ast.Tuple() | ast.List():
                for element in target.elts:
                    self._bind(element, value, scope)
            case ast.Starred():
                self._bind(target.value, value, scope)
            case ast.Subscript():
                container = self._value(target.value, scope)
                self.groups.join(container if container is not None else ANYTHING, value)
                self.groups.note_key(self._index(target, scope), container)
            case ast.Attribute():
                self._value(target.value, scope)
                field = self.groups.join(self._field(target.attr), value)
                if field is not None and self._is_class(target.value, scope):
                    self.groups.note_bound(field)
            case _:
                self._is_lost = True

    def _iterate(self, target: ast.expr, iterable: ast.expr, scope: Scope, inner: Scope) -> None:
        """Bind, in the `inner` scope, what a loop takes from an iterable."""
        if self.columns_of(iterable, scope) is None:
            members = self._members(iterable, scope)
            self._bind(target, self._value(iterable, scope) if members is None else members, inner)
            return
        for number, element in enumerate(target.elts):
            self._bind(element, self.groups.place(iterable.id, f"{scope.module.name}[:, {number}]"), inner)

    def columns_of(self, iterable: ast.expr, scope: Scope) -> list[list[ast.expr]] | None:
        """The columns of one of `tables_of_rows`, which a loop takes apart; None of any other expression."""
        home = self._pass.scopes[scope.module.name]
        own = isinstance(iterable, ast.Name) and scope.find(iterable.id) is home
        return self._columns.get((scope.module.name, iterable.id)) if own else None

    def _members(self, node: ast.expr, scope: Scope) -> int | None:
        """The group of an enumeration's members, as `ROUTE[name]` and `for one in ROUTE` give; None of what is none."""
        name, own = self._made_by.get(scope.function.node, ("", None))
        own = own if isinstance(node, ast.Name) and node.id == name else self._pass.own_class(node, scope)
        if own is None or not self._pass.facts(own).is_enumeration:
            return None
        return self.groups.new(*map(Instance, self._pass.derived(own)))

    def _is_class(self, node: ast.expr, scope: Scope) -> bool:
        """Whether an expression may be a class of the pass: what it holds is read off instances, too."""
        if self._pass.own_class(node, scope) is not None:
            return True
        return not (isinstance(node, ast.Name) and node.id in self._instances.get(scope.function.node, ()))

    def _index(self, node: ast.Subscript, scope: Scope) -> int | None:
        index = self._value(node.slice, scope)
        self.indices[node] = None if isinstance(node.slice, ast.Tuple) else index
        if "__getitem__" in self._methods:
            self.groups.hand(self._methods_of_name("__getitem__"), GivenGroups([index]))
        return index

    def _methods_of_name(self, name: str) -> Signature:
        """All methods of a name as one, an instance or a class that comes first aside."""
        if name not in self._by_name:
            found = []
            for method in self._methods[name]:
                static = "staticmethod" in decorator_names(method)
                found.append(self.groups.signature(method, 0 if static else 1))
            self._by_name[name] = self.groups.common(found)
        return self._by_name[name]

    def _value(self, node: ast.AST, scope: Scope) -> int | None:
        """The group of an expression's value; None for what is no function of the pass and holds none."""
        self._pass.steps.take()
        match node:
            case ast.Name():
                return self._name(node, scope)
            case ast.Attribute():
                return self._attribute(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Subscript() if (members := self._members(node.value, scope)) is not None:
                self._index(node, scope)
                return members
            case ast.Subscript():
                self.indexed[node] = container = self._value(node.value, scope)
                index = self._index(node, scope)
                self.groups.note_index(self.indices[node], container)
                if isinstance(node.slice, ast.Tuple):  # `typing.Union[K, L][f, f]` of type variables is f
                    self.groups.note_key(index, container)
                library = (scope.module.dotted(node.value) or "").partition(".")[0]
                if library and library not in scope.module.siblings:
                    container = self.groups.join(container, index)  # a type that is made of a class
                if "__getitem__" not in self._methods:
                    return container
                own = self._pass.known.class_of(node.value, scope)
                getter = self._methods_of_name("__getitem__").result
                known = own is not None and self._pass.methods_of(own, "__getitem__")
                return getter if known else self.groups.join(container, getter)
            case ast.Lambda():
                self._outside(node, scope)
                inner = open_scope(scope.module, node, scope)
                self.groups.join(self.groups.place(node, RETURN), self._value(node.body, inner))
                return self.groups.new(node)
            case ast.NamedExpr():
                value = self._value(node.value, scope)
                self._bind(node.target, value, scope.function)
                return value
            case ast.IfExp():
                self._value(node.test, scope)
                return self.groups.join(self._value(node.body, scope), self._value(node.orelse, scope))
            case ast.Yield() | ast.YieldFrom():
                value = self._value(node.value, scope) if node.value is not None else None
                self.groups.join(self.groups.place(scope.function.node, RETURN), value)
                return value
            case ast.Constant():
                return None
        if isinstance(node, COMPREHENSIONS):
            inner = open_scope(scope.module, node, scope)
            outside = scope
            for generator in node.generators:
                self._iterate(generator.target, generator.iter, outside, inner)
                outside = inner
                for test in generator.ifs:
                    self._value(test, inner)
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            return self.groups.join(*(self._value(part, inner) for part in parts))
        parts = [self._value(part, scope) for part in children(node) if isinstance(part, ast.expr)]
        if isinstance(node, ast.Compare) and "__contains__" in self._methods:
            for asked in parts[:-1]:
                self.groups.hand(self._methods_of_name("__contains__"), GivenGroups([asked]))
        if isinstance(node, ast.Compare | ast.UnaryOp | ast.JoinedStr | ast.FormattedValue):
            return None
        if isinstance(node, ast.BinOp) and isinstance(node.op, _OF_NUMBERS):
            return None
        plain = ast.Tuple | ast.List | ast.Set | ast.Dict | ast.BinOp | ast.BoolOp | ast.Starred | ast.Slice
        return self.groups.join(*parts) if isinstance(node, plain) else self.groups.join(ANYTHING, *parts)

    def _of_function(self, function: ast.FunctionDef, node: ast.expr, scope: Scope) -> int:
        self.noted.add(node)
        targets = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
        known = all((scope.module.dotted(t) or written_name(t)) in _KNOWN_DECORATORS for t in targets)
        return self.groups.join(self.groups.new(function), None if known else ANYTHING)

    def _of_class(self, own: ast.ClassDef) -> int:
        """A class as a value: an enumeration hands out its members."""
        return self.groups.new(own, *([Instance(own)] if self._pass.facts(own).is_enumeration else []))

    def _name(self, node: ast.Name, scope: Scope) -> int | None:
        if (function := self._pass.host_function(node, scope)) is not None:
            return self._of_function(function, node, scope)
        if (own := self._pass.own_class(node, scope)) is not None:
            return self._of_class(own)
        dotted = scope.module.dotted(node)
        if dotted is not None:
            return self._imported(node, dotted, scope)
        owner = scope.find(node.id)
        if owner is None:
            plain = names.PLAIN_VALUES - names.ERRORS
            return None if node.id in plain else ANYTHING
        if isinstance(owner.node, ast.Module) and node.id in owner.module.kernels:
            self.noted.add(node)
            return self.groups.new(owner.module.kernels[node.id])
        return self._variable(node.id, scope)

    def _imported(self, node: ast.expr, dotted: str, scope: Scope) -> int | None:
        place = scope.module.sibling_function(dotted)
        other = self._pass.modules.get(place[0]) if place is not None else None
        if other is None:
            plain = dotted in names.HOST_VALUES - {"torch.Tensor", "torch.dtype"}
            if dotted.startswith("torch.") and not plain:
                self.given_to_torch.append(ANYTHING)  # whoever calls an operator that is a value hands it something
            return None if plain else ANYTHING
        name = place[1]
        if name in other.imports:
            return ANYTHING
        if name in other.kernels:
            self.noted.add(node)
            return self.groups.new(other.kernels[name])
        return self.groups.place(other.tree, name)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> int | None:
        dotted = scope.module.dotted(node)
        if (function := self._pass.host_function(node, scope)) is not None:
            return self._of_function(function, node, scope)
        if (own := self._pass.own_class(node, scope)) is not None:
            return self._of_class(own)
        library = dotted is not None and not scope.module.is_of_sibling(node)
        if library and self._pass.own_class(node.value, scope) is None:
            return self._imported(node, dotted, scope)
        base = self._value(node.value, scope)
        own = self._pass.own_class(node.value, scope)
        if base is not None and own is None:
            self.bases[node] = base
        if own is not None and self._pass.facts(own).is_enumeration:
            return self.groups.join(self.groups.new(Instance(own)), self._field(node.attr))
        if node.attr not in self._fields:
            return None if node.attr in _WITHOUT_FUNCTIONS else self.groups.join(ANYTHING, base)
        found = [self._field(node.attr)]
        methods = self._methods.get(node.attr, ())
        if methods and not all(map(is_property, methods)):
            found += [ANYTHING, self._method_values(node.attr)]
        if any(map(is_property, methods)):
            found.append(self._methods_of_name(node.attr).result)
        return self.groups.join(*found)

    def _method_values(self, name: str) -> int:
        """All methods of a name as values: each gets the instance by itself, so that its arguments are others."""
        if name not in self._handed:
            self._handed[name] = self.groups.join(ANYTHING, self.groups.new(*self._methods[name]))
        return self._handed[name]

"""Expressions that are surely an instance of one class of the pass: `CLASS(…)`, a variable or a field that is given
that once, and calls of its methods that return what they are called on."""

import ast
from collections import Counter
from collections.abc import Iterator

from passbench.policy.flow.class_parts import is_plain, members_of
from passbench.policy.flow.values import PassNames
from passbench.policy.library_members import is_of_plain_objects
from passbench.policy.modules import Module
from passbench.policy.nodes import assigned_by, walk
from passbench.policy.scopes import Scope, hands_back, made_once, open_scope


class KnownInstances:
    """Which class an expression is an instance of. None of it depends on what calls hand over."""

    def __init__(self, pass_: PassNames) -> None:
        self._pass = pass_
        self._calls: dict[ast.Call, ast.ClassDef | None] = {}
        self._variables: dict[ast.AST, dict[str, ast.ClassDef]] = {}
        self._fields: dict[str, ast.ClassDef] | None = None
        self._values: set[str] | None = None  # names of what is no call, no base and no type

    def class_of(self, node: ast.expr, scope: Scope) -> ast.ClassDef | None:
        """The class, or None where the source does not say it. Each call of a row is looked at once."""
        row: list[ast.Call] = []
        while isinstance(node, ast.Call) and node not in self._calls:
            own = self._pass.own_class(node.func, scope)
            if own is not None or not isinstance(node.func, ast.Attribute):
                self._calls[node] = own
                break
            row.append(node)
            node = node.func.value
        found = self._calls[node] if isinstance(node, ast.Call) else self._of_name(node, scope)
        for call in reversed(row):
            found = found if found is not None and self._returns_itself(found, call.func.attr) else None
            self._calls[call] = found
        return found

    def is_value(self, own: ast.ClassDef) -> bool:
        """Whether a class may be more than what makes instances and what others derive from: a method that is read off
        it can be called on anything."""
        if self._values is None:
            self._values = set()
            for module in self._pass.modules.values():
                nodes = walk(module.tree)
                self._pass.steps.take(len(nodes))
                plain = {id(part) for node in nodes for part in _naming_types(node)}
                for node in nodes:
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in plain:
                        self._values.add(node.id)
                    elif isinstance(node, ast.Attribute) and id(node) not in plain:
                        self._values.add(node.attr)
                    elif isinstance(node, ast.alias) and node.asname not in (None, node.name):
                        self._values.add(node.name)
        derived = self._pass.derived(own)
        self._pass.steps.take(len(derived))
        return any(one.name in self._values for one in derived)

    def _of_name(self, node: ast.expr, scope: Scope) -> ast.ClassDef | None:
        name = node.id if isinstance(node, ast.Name) else ""
        owner = scope.find(name) if name else None
        dotted = scope.module.dotted(node)
        place = scope.module.sibling_function(dotted or "")
        if place is not None:
            owner, name = self._pass.scopes.get(place[0]), place[1]
        elif isinstance(node, ast.Attribute) and (dotted is None or scope.module.is_of_sibling(node)):
            return self._of_field(node.attr)
        if owner is None or not isinstance(owner.node, ast.Module | ast.FunctionDef):
            return None
        if owner.node not in self._variables:
            self._pass.steps.take(len(walk(owner.node)))
            self._variables[owner.node] = {}  # until it is known
            self._variables[owner.node] = made_once(owner.node, lambda value: self.class_of(value, owner))
        return self._variables[owner.node].get(name)

    def _of_field(self, name: str) -> ast.ClassDef | None:
        if self._fields is None:
            self._fields = {}  # until it is known
            self._fields = dict(self._made_in_initials())
        return self._fields.get(name)

    def _made_in_initials(self) -> Iterator[tuple[str, ast.ClassDef]]:
        """Fields that an `__init__` gives such an instance, and nothing else gives anything; no other object has one of
        that name."""
        bound: Counter[str] = Counter(name for own in self._pass.class_homes for _, name in members_of(own))
        stored: Counter[str] = Counter()
        for module in self._pass.modules.values():
            nodes = walk(module.tree)
            self._pass.steps.take(len(nodes))
            stored.update(n.attr for n in nodes if isinstance(n, ast.Attribute) and not isinstance(n.ctx, ast.Load))
        for own, home in self._pass.class_homes.items():
            for field, value, scope in self._initials(own, home):
                if bound[field] == stored[field] == 1 and not is_of_plain_objects(field):
                    made = self.class_of(value, scope)
                    if made is not None and field in self._pass.fields:
                        yield field, made

    def _initials(self, own: ast.ClassDef, home: Module) -> Iterator[tuple[str, ast.Call, Scope]]:
        for method in own.body:
            if not isinstance(method, ast.FunctionDef) or method.name != "__init__":
                continue
            scope = open_scope(home, method, self._pass.scopes[home.name])
            for statement in method.body:
                targets = assigned_by(statement)
                value = statement.value if len(targets) == 1 and isinstance(targets[0], ast.Attribute) else None
                if isinstance(value, ast.Call):
                    yield targets[0].attr, value, scope

    def _returns_itself(self, own: ast.ClassDef, name: str) -> bool:
        """Whether a method of instances returns what it is called on, whatever it returns."""
        methods = self._pass.methods_of(own, name)
        if len(methods) != 1 or name in self._pass.stored_names or not is_plain(methods[0]):
            return False
        method = methods[0]
        if not hasattr(method, "_returns_itself"):
            self._pass.steps.take(len(walk(method)))
            method._returns_itself = hands_back(method, called=False)
        return method._returns_itself


def _naming_types(node: ast.AST) -> list[ast.AST]:
    """What a node calls, derives from, or has for a type."""
    if isinstance(node, ast.Call):
        return [node.func]
    if isinstance(node, ast.ClassDef):
        return node.bases
    types = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    return [part for one in types if one is not None for part in walk(one)]

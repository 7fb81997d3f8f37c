"""The static policy on names and attributes in host code: what they stand for, and findings on those that are on no
list."""

import ast

from passbench.policy import allowlists as names
from passbench.policy import operators
from passbench.policy.flow.class_parts import is_plain, is_property
from passbench.policy.flow.known_instances import KnownInstances
from passbench.policy.host.bindings import CONTEXT, FIELDS
from passbench.policy.host.classes import fields_of
from passbench.policy.host.subscripts.indices import Indices
from passbench.policy.item_parts import parts_of_union
from passbench.policy.library_members import (
    does_more,
    fields_of_tensors_too,
    is_of_plain_objects,
    takes_nothing,
)
from passbench.policy.nodes import quoted, written_name
from passbench.policy.scopes import ITEMS, Scope, ValueKind, joined
from passbench.policy.suggestions import advice_on

SHARED_ADVICE = (
    "objects of libraries have it, too: use it on self, or on a variable that is given CLASS(…) once; or choose another"
    " name"
)
_WITHOUT_MEMBERS = frozenset("object abc.ABC typing.Protocol".split())
"""Bases of a class that give it no members."""


class NamedValues(Indices):
    """Looks names up, and attributes of what they stand for."""

    fields: frozenset[str]
    """Names of fields and methods of the classes of the pass; see `passbench.policy.host.classes`."""
    properties: frozenset[str]
    """Those of the methods that some class has as a property."""
    stored_names: frozenset[str]
    """Names of fields and properties that classes of the pass bind, or that something binds to an attribute."""
    shared_names: dict[str, list[ast.FunctionDef]]
    """Names of fields and methods that objects of libraries have, too, with the methods."""
    has_named_tuples: bool
    called_at_once: dict[ast.expr, str]
    """See `passbench.policy.operators.called_at_once`."""
    inheriting: set[ast.ClassDef]
    """See `with_library_members`."""
    known: KnownInstances
    kernels_of_classes: dict[str, ast.FunctionDef]
    """Fields that are a kernel in one class, and nothing else in any."""

    def host_function(self, node: ast.expr, scope: Scope) -> ast.FunctionDef | None:
        """The host function of the pass that an expression names, here or in a sibling."""
        dotted = scope.module.dotted(node)
        if dotted is not None:
            place = scope.module.sibling_function(dotted)
            other = self.modules.get(place[0]) if place else None
            return other.functions.get(place[1]) if other else None
        if isinstance(node, ast.Name):
            owner = scope.find(node.id)
            return owner.functions.get(node.id) if owner else None
        return None

    def own_class(self, node: ast.expr, scope: Scope) -> ast.ClassDef | None:
        """The class of the pass that an expression names, here or in a sibling."""
        dotted = scope.module.dotted(node)
        place = scope.module.sibling_function(dotted) if dotted else None
        if place is not None:
            other = self.modules.get(place[0])
            return other.classes.get(place[1]) if other else None
        if isinstance(node, ast.Name) and scope.find(node.id) is self.scopes[scope.module.name]:
            return scope.module.classes.get(node.id)
        return None

    def annotation(self, node: ast.expr | None, scope: Scope) -> None:
        """Check a type; see `passbench.policy.host.expressions`."""
        raise NotImplementedError

    def type_value(self, node: ast.expr, scope: Scope) -> ValueKind:
        """A type as a value. A union of one object, such as `typing.Union[PLAN]`, is that object. One with a built-in
        type among others is no object that can be called."""
        self.annotation(node, scope)
        parts = parts_of_union(node, scope.module.dotted)
        if len(classes := {self.own_class(part, scope) for part in parts}) == 1 and None not in classes:
            return self.kind(parts[0], scope)
        built_in = [isinstance(p, ast.Name) and p.id in names.TYPES_IN_UNIONS and not scope.find(p.id) for p in parts]
        listed = names.TYPES | names.NUMBERS
        others = [p for p in parts if scope.module.dotted(p) not in listed and self.own_class(p, scope) is None]
        return ValueKind.SCALAR if any(built_in) else joined(self.kind(p, scope) for p in others if p is not node)

    def _name(self, node: ast.Name, scope: Scope, hook: bool) -> ValueKind:
        function = self.host_function(node, scope)
        if function is not None:
            return self._hand_on(function, hook, node, scope)
        dotted = scope.module.dotted(node)
        if dotted is not None:
            return self.imported_name(node, dotted, scope)
        owner = scope.find(node.id)
        if owner is not None and isinstance(owner.node, ast.ClassDef):  # what the class holds may be put into later
            return self.kinds.get(FIELDS, node.id)
        if owner is not None:
            for function in owner.lambdas.get(node.id, []):
                if hook:
                    self.mark_hook(function)
                elif not self.flow.is_known(function):
                    message = f"{node.id} is a lambda; use it as a grid, or write a function with def"
                    self.find("lambda_as_value", scope.module, node, message)
            if (own := self.own_class(node, scope)) is not None:
                self.class_values.add(own)
                if self.flow.is_read_through(own) and not (node in self.listed and self.facts(own).is_enumeration):
                    self.note_handed_on(own)
            if owner.made_by is not None and owner.made_by[0] == node.id:
                for one in self.derived(owner.made_by[1]):
                    self.class_values.add(one)
                    if self.flow.is_read_through(one):
                        self.note_handed_on(one)
            kernel = owner is self.scopes[scope.module.name] and node.id in scope.module.kernels
            if node in self.keys_of_tables:
                return ValueKind.SCALAR
            if node.id == owner.self_name:
                own_kind = max(ValueKind.ADDRESS, self.kinds.get(owner.node, ITEMS))
                return joined((own_kind, self.kinds.get(owner.node, node.id)))  # what `CLASS.method(…)` is given
            if own is not None or kernel:
                return ValueKind.ADDRESS
            if owner is not scope and node.id in owner.caught:  # whoever runs within the handler could read it here
                self.read("an error is used where it is caught, by no other function", scope, node)
            return self.kinds.get(owner.node, node.id)
        if node.id not in names.PLAIN_VALUES:
            self.unknown(node.id, node, scope.module)
        return ValueKind.SCALAR

    def _hand_on(self, function: ast.FunctionDef, hook: bool, node: ast.expr, scope: Scope) -> ValueKind:
        """A function of the pass used as a value: called by Triton if `hook`, else by anyone with anything."""
        self.check_callable(function, node, scope)
        if hook:
            self.mark_hook(function)
        elif node in self.in_tables or node in self.to_graph:  # it is called there alone, with what is known
            return ValueKind.ADDRESS
        elif function not in self.escaped and not (node in self.flow.noted and self.flow.is_known(function)):
            self.escaped.add(function)
            self.kinds.changed = True
        return ValueKind.SCALAR if hook else ValueKind.ADDRESS

    def check_callable(self, function: ast.FunctionDef, node: ast.AST, scope: Scope) -> None:
        """Report a use of `pattern` and the like, which may hold any operation: host code must not run them. A context
        manager is called behind `with` alone, where it ends."""
        if function in self.special:
            message = f"{function.name} is for PassBench alone; call a function of your own"
            self.find("forbidden_call", scope.module, node, message)
        if function in self.managers and node not in self.entered:
            message = f"{function.name} is a context manager; write `with {function.name}(…):` where it is needed"
            self.find("forbidden_call", scope.module, node, message)

    def imported_name(self, node: ast.expr, dotted: str, scope: Scope) -> ValueKind:
        """A name that starts at an import, such as `torch.float16`, used as a value. Refused unless a list has it."""
        place = scope.module.sibling_function(dotted)
        if place is not None:
            self.check_sibling(place, node, scope)
            if (own := self.own_class(node, scope)) is not None:
                self.class_values.add(own)
                if self.flow.is_read_through(own):
                    self.note_handed_on(own)
            other = self.modules.get(place[0])
            if other is not None and (place[1] in other.kernels or place[1] in other.classes):
                return ValueKind.ADDRESS
            return self.kinds.get(other.tree, place[1]) if other else ValueKind.SCALAR
        if dotted == "torch.Tensor":  # a method that is read off it is a tensor's
            return ValueKind.EITHER
        if dotted in names.HOST_VALUES | names.TYPE_FORMS:
            return ValueKind.SCALAR
        if dotted in names.ALLOCATORS | names.SCALAR_CALLS | names.COLLECTING_CALLS | names.LAUNCHING:
            self.find("function_as_value", scope.module, node, f"call {dotted} where it is needed")
        elif dotted in names.MODULES or dotted in scope.module.siblings or names.may_import(dotted):
            message = f"{quoted(node)} is a module; use its members by name and do not hand it on"
            self.find("module_as_value", scope.module, node, message)
        elif dotted not in names.MATH and (stored := operators.stored_name(dotted)) is not None:
            effects = operators.library_call(stored, [], {})
            if dotted.startswith("torch.ops.") and dotted.count(".") == 3:  # others could set its overloads
                self.find("function_as_value", scope.module, node, f"name an overload: {stored}")
            if effects.random or effects.reading or operators.writes_always(stored):
                self.refuse_name(node, dotted, scope)
            elif not operators.may_be_value(stored, self.called_at_once.get(node)):
                self.find("function_as_value", scope.module, node, f"call {dotted} where it is needed")
            self.operators_handed_on |= dotted.startswith("torch.")
            if operators.takes_inplace(stored) or operators.switched_by(stored):
                self.writing_by_choice.add(stored)
            return ValueKind.ADDRESS if dotted.startswith("torch.") else ValueKind.SCALAR
        else:
            self.refuse_name(node, dotted, scope)
        return ValueKind.SCALAR

    def check_sibling(self, place: tuple[str, str], node: ast.expr, scope: Scope) -> None:
        """Report a sibling's lambda: what it is called with is known in its own module alone."""
        other = self.scopes.get(place[0])
        if other is not None and place[1] in other.lambdas:
            message = f"{place[1]} is a lambda of another module; write a function with def"
            self.find("lambda_as_value", scope.module, node, message)
        if other is not None and place[1] not in other.names and place[1] not in other.module.imports:
            self.find("forbidden_name", scope.module, node, f"{place[0]}.py has no {place[1]}")

    def refuse_name(self, node: ast.expr, dotted: str, scope: Scope) -> None:
        """Report an imported name, used or called, that no list of `passbench.policy.allowlists` has."""
        advice = advice_on(dotted)
        if advice is not None:
            message = f"{dotted} is not allowed in host code; {advice}"
        elif dotted.startswith("triton.language."):
            message = f"{dotted} works in a @triton.jit kernel alone; name it at a module's top: f = tl.exp"
        elif dotted.startswith("torch."):
            message = f"{dotted} is not allowed in host code; call an operator that computes from its arguments alone"
        else:
            message = f"{dotted} is not allowed in host code; a call knows its own inputs and nothing else"
            message += ": write it with plain functions, dicts and dataclasses"
        self.find("forbidden_call", scope.module, node, message)

    def handed_kind(self, node: ast.expr, scope: Scope, *, hook: bool = False) -> ValueKind:
        """The kind of an expression whose value goes on under another name: of an iterator it is what its text has."""
        kind = self.kind(node, scope, hook=hook)
        return max(kind, ValueKind.ADDRESS) if self.is_iterator(node, scope) else kind

    def check_text(self, node: ast.expr, kind: ValueKind, scope: Scope) -> None:
        """Report a value of this kind whose text would have an address: a function, kernel or class of the pass, an
        instance without a text of its own, an iterator, or a container of such."""
        if kind is ValueKind.ADDRESS or self.is_iterator(node, scope):
            message = f"the text of {quoted(node)} may have an address; write a name of your own as a string"
            message += ", or give its class a __repr__"
            self.find("forbidden_name", scope.module, node, message)

    def check_order(self, node: ast.expr, kind: ValueKind, scope: Scope) -> None:
        """Report a set of what is ordered by addresses."""
        if kind is ValueKind.ADDRESS:
            message = "a set of functions, classes or instances is ordered by addresses; use a list or a dict"
            self.find("forbidden_name", scope.module, node, message)

    def _attribute(self, node: ast.Attribute, scope: Scope, hook: bool) -> ValueKind:
        dotted = scope.module.dotted(node)
        if node.attr == "__name__" and self._is_type_of(node.value, scope):  # of an error, in a message
            self.seen.add(node.value)
            self.kind(node.value.args[0], scope)
            return ValueKind.SCALAR
        if dotted is not None:
            if dotted not in names.VERSIONS and scope.module.is_private(dotted):
                self.find("private_name", scope.module, node, f"{dotted} is private; a pass uses public names")
                return ValueKind.SCALAR
            function = self.host_function(node, scope)
            if function is not None:
                return self._hand_on(function, hook, node, scope)
            if self.own_class(node.value, scope) is None and not scope.module.is_of_sibling(node):
                return self.imported_name(node, dotted, scope)
        return self.member(node, self.base_kind(node, scope, called=False), scope)

    def base_kind(self, node: ast.Attribute, scope: Scope, *, called: bool) -> ValueKind:
        """The kind of what an attribute is of: a class is no tensor. A method that is read off a class, or `called`
        through one without being its own, may be called on anything."""
        own = self.own_class(node.value, scope)
        classes = [own] if own is not None else self.made_by(node.value, scope)
        for one in classes:
            methods = (m for home in self.lineage(one) for m in self.facts(home).methods.get(node.attr, ()))
            if any(not called or is_plain(method) for method in methods):
                self.note_handed_on(one)
        if classes:
            self.seen.add(node.value)
            return ValueKind.SCALAR
        return self.kind(node.value, scope)

    def is_field_of_class(self, target: ast.expr, scope: Scope) -> bool:
        """Whether a target is `CLASS.NAME`, or `cls.NAME` in a class method, where the class binds the field to a value
        that is no kernel. An enumeration keeps its members, and a namespace has rules of its own."""
        if not isinstance(target, ast.Attribute) or target.attr.startswith("__"):
            return False
        own = self.own_class(target.value, scope)
        classes = [own] if own is not None else self.made_by(target.value, scope)
        if not classes or target.attr in self.methods or target.attr in self.kernels_of_classes:
            return False
        self.seen.add(target.value)
        for one in classes:
            home = self.class_homes[one]
            ancestors = self.lineage(one)
            self.steps.take(sum(len(base.body) for base in ancestors))
            bases = self.bases_of(ancestors) - {"abc.ABC", "typing.Protocol"}
            unusual = any(not self.class_homes[one].sibling_function(base) for base in bases - {""})
            if unusual or one.name in home.namespaces or one.name in home.torch_modules:
                return False
            if not any(target.attr in fields_of(base) for base in ancestors):
                return False
        return True

    def made_by(self, node: ast.expr, scope: Scope) -> list[ast.ClassDef]:
        """The classes that the first parameter of a class method may be; none where an expression names no such one."""
        owner = scope.find(node.id) if isinstance(node, ast.Name) else None
        own = owner.made_by if owner is not None else None
        return self.derived(own[1]) if own is not None and own[0] == node.id else []

    def is_field(self, node: ast.Attribute, base: ValueKind, scope: Scope) -> bool:
        """Whether an attribute is a field or method of the pass's classes, read off a value of this kind."""
        if node.attr not in self.fields:
            return False
        if base is ValueKind.ADDRESS and does_more(node.attr):  # beside an instance it may be a tensor
            return self.class_of(node.value, scope) is not None
        if base is ValueKind.EITHER and takes_nothing(node.attr) and self.flow.is_instance(node):
            return True
        may_be_tensor = base.is_tensor or (base.is_either and base is not ValueKind.ADDRESS)
        return not (may_be_tensor and node.attr in fields_of_tensors_too())

    def with_library_members(self) -> set[ast.ClassDef]:
        """Classes of the pass whose instances may have members of a library's class, such as an error's `args`: those
        that derive from one, and those from which such a class of the pass derives, too. A namespace has no instances.
        """
        derived = {one for one, home in self.class_homes.items() if self._derives(one, self.scopes[home.name])}
        found: set[ast.ClassDef] = set()
        for one in self.class_homes:
            ancestors = self.lineage(one)
            found |= set() if derived.isdisjoint(ancestors) else set(ancestors)
        return found

    def _derives(self, own: ast.ClassDef, home: Scope) -> bool:
        if own.name in home.module.namespaces or own.name in home.module.torch_modules:
            return True
        bases = [base for base in own.bases if self.own_class(base, home) is None]
        return any((home.module.dotted(base) or written_name(base)) not in _WITHOUT_MEMBERS for base in bases)

    def is_of_instance(self, node: ast.Attribute, scope: Scope) -> bool:
        """Whether a member, of whose name others have one too, is read off an instance of a class of the pass: off
        `self`, `CLASS(…)`, or a variable that is given that once; or off what no library's object is that has one."""
        if node.attr not in self.shared_names:
            return False
        own = self.class_of(node.value, scope)
        if own is not None and own not in self.inheriting:
            return True
        return not is_of_plain_objects(node.attr) and self.flow.is_instance(node)

    def class_of(self, node: ast.expr, scope: Scope) -> ast.ClassDef | None:
        """The class of the pass of which an expression is surely an instance."""
        owner = scope.find(node.id) if isinstance(node, ast.Name) else None
        if owner is not None and isinstance(owner.node, ast.FunctionDef) and node.id == owner.self_name:
            own = self.classes_of_methods.get(owner.node)
            return None if own in self.handed_on else own
        return self.known.class_of(node, scope)

    def mark_called(self, node: ast.expr, scope: Scope) -> None:
        """Note that Triton calls what an expression is, if that is surely an instance or a class of the pass."""
        made, own = self.class_of(node, scope), self.own_class(node, scope)
        for one, name in ((made, "__call__"), (own, "__init__")):
            for method in self.methods_of(one, name) if one is not None else ():
                self.mark_hook(method)

    def member(self, node: ast.Attribute, base: ValueKind, scope: Scope) -> ValueKind:
        """An attribute of a value of this kind."""
        if self.is_of_context(node, scope):
            if node.attr == "saved_tensors":
                return ValueKind.HOLDER
            if node.attr == "needs_input_grad" or (CONTEXT, node.attr) in self.kinds:
                return self.kinds.get(CONTEXT, node.attr)
        own = self.kinds.get(FIELDS, node.attr)
        if node.attr in names.VIEW_ATTRIBUTES and node.attr in self.fields:
            instance = self.class_of(node.value, scope)
            return own if instance is not None and instance not in self.inheriting else joined((base, own))
        if self.is_field(node, base, scope):
            if base in (ValueKind.ADDRESS, ValueKind.EITHER) and node.attr in fields_of_tensors_too():
                own = joined((own, ValueKind.ADDRESS))  # or it is a tensor, whose method has an address
            if node.attr in self.methods:  # a property, or a method that is handed on
                given = max(own, self.give_methods(node.attr, [], {None: ValueKind.TENSOR}))
                return given if node.attr in self.properties else max(given, ValueKind.ADDRESS)
            return own
        if node.attr in self.shared_names and self.is_of_instance(node, scope):
            if not (methods := self.shared_names[node.attr]):  # a field
                return own
            given = max(own, self.give_methods(node.attr, [], {None: ValueKind.TENSOR}))
            return given if all(map(is_property, methods)) else max(given, ValueKind.ADDRESS)
        if node.attr in self.shared_names and node.attr in names.VIEW_ATTRIBUTES:
            return joined((base, own, self.give_methods(node.attr, [], {})))
        if node.attr in self.shared_names:
            rule = "private_name" if node.attr.startswith("_") else "forbidden_attribute"
            self.find(rule, scope.module, node, f"{node.attr} is not allowed here; {SHARED_ADVICE}")
        elif node.attr.startswith("_"):
            self.find("private_name", scope.module, node, f"{node.attr} is private; a pass uses public names")
        elif node.attr in names.VIEW_ATTRIBUTES:
            return base
        elif node.attr in names.CONFIG_ATTRIBUTES:
            return ValueKind.SCALAR
        elif node.attr not in names.TENSOR_ATTRIBUTES and (
            base.holds_tensors or node.attr not in names.SCALAR_ATTRIBUTES
        ):
            advice = advice_on(node.attr) or self.advice_on_member(node, scope)
            message = f"attribute {node.attr} is not allowed in host code; {advice}"
            self.find("forbidden_attribute", scope.module, node, message)
        return ValueKind.SCALAR

    def _is_type_of(self, node: ast.expr, scope: Scope) -> bool:
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "type"
            and scope.find("type") is None
            and len(node.args) == 1
            and not node.keywords
            and not isinstance(node.args[0], ast.Starred)
        )

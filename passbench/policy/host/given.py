"""The static policy on what is given to functions, methods and kernels whose calls are not all looked at one by one."""

import ast
import itertools
from collections.abc import Container

from passbench.policy import item_parts
from passbench.policy.flow.groups import Instance
from passbench.policy.flow.value_flow import ValueFlow
from passbench.policy.host.bindings import DIRECTLY, FIELDS, METHODS, VALUES, Bindings
from passbench.policy.nodes import children, walk
from passbench.policy.scopes import (
    RETURN,
    Scope,
    ValueKind,
    built_in_called,
    defaults,
    joined,
    makes_iterator,
    makes_sequence,
    owned_values,
    parameters,
)

_SAME_ITEMS = frozenset("list tuple set sorted reversed iter".split())
"""Built-ins that hand out what they are given."""
Keywords = dict[str | None, ValueKind]
"""The kinds of what a call gives by name, or by `**`."""
SET = "set()"
"""The name under which `Kinds` keeps what methods of a class set fields to; no member can be called so."""


class Given(Bindings):
    """Keeps what hooks of Triton, kernels, and methods of a name are given; and which values are iterators or
    sequences."""

    flow: ValueFlow
    """What calls that name no function can call."""

    classes_of_methods: dict[ast.FunctionDef, ast.ClassDef]

    def bind_field(self, name: str, kind: ValueKind, value: ast.expr | None, scope: Scope, single: bool) -> None:
        """As `Bindings` does; what a method sets is kept for the instances of its class, too."""
        super().bind_field(name, kind, value, scope, single)
        self._note_set(kind, scope)

    def put_into(self, container: ast.expr, kind: ValueKind, scope: Scope) -> None:
        """The same for what a method puts into a list or dict of its instance."""
        super().put_into(container, kind, scope)
        if self.is_own_field(container, scope):
            self._note_set(kind, scope)

    def _note_set(self, kind: ValueKind, scope: Scope) -> None:
        around: Scope | None = scope
        while around is not None and around.node not in self.classes_of_methods:
            around = around.parent
        if around is not None:
            self.kinds.join(self.classes_of_methods[around.node], SET, self.holder([kind]))

    def set_later(self, own: ast.ClassDef) -> ValueKind:
        """What fields of an instance may be set to after it has been made: methods of its class tell."""
        return joined(self.kinds.get(one, SET) for one in self.lineage(own))

    def enter(self, node: ast.FunctionDef | ast.Lambda, scope: Scope, kind: ValueKind) -> None:
        """What parameters can be at least: of this kind, their defaults, and what Triton hands in if it is a hook."""
        for parameter, default in defaults(node):
            self.kinds.join(node, parameter.arg, self.kind(default, scope), single=self.is_single(default, scope))
            if self.is_sequence(default, scope):
                self.note_sequence(node, parameter.arg)
        grid = node in self.hooks and node not in self.of_decorators | self.escaped
        chosen = {parameter for parameter, _ in defaults(node)} if grid else set()
        for number, parameter in enumerate(parameters(node), -self.fixed.get(node, 0)):
            starred = parameter in (node.args.vararg, node.args.kwarg)
            if node in self.hooks:  # a dict of arguments, configurations and one, or keywords
                if grid and (number < 0 or (number > 0 and parameter in chosen)):
                    continue  # it is called with the dict alone
                kind = ValueKind.HOLDER if starred or number < 2 else ValueKind.TENSOR
            if starred:  # of functions and methods the calls tell what it collects
                told = node in self.homes or node in self.classes_of_methods or self.flow.is_known(node)
                self.kinds.join(node, parameter.arg, self.holder([kind]) if told else ValueKind.HOLDER)
            else:
                self.kinds.join(node, parameter.arg, kind, single=kind is ValueKind.SCALAR)  # then it is given nothing

    def mark_hook(self, function: ast.FunctionDef | ast.Lambda) -> None:
        """Note that Triton calls a function, with what it hands in from its first parameter on."""
        known = function in self.hooks and not self.fixed.get(function)
        if known and (function in self.of_decorators or not self.decorating):
            return
        self.hooks.add(function)
        self.fixed[function] = 0
        self.of_decorators |= {function} if self.decorating else set()
        self.kinds.changed = True

    def mark_grids(self, node: ast.Subscript, grid: ValueKind) -> None:
        """Note that Triton calls what stands in `KERNEL[grid]`, if a kernel may be what is indexed there."""
        held = self.flow.grids(node)
        if held is None and grid >= ValueKind.ADDRESS:
            self.let_triton_call(hooks=False)
        self.steps.take(len(held or ()))
        for one in held or ():
            if isinstance(one, ast.ClassDef | Instance):
                own, name = (one, "__init__") if isinstance(one, ast.ClassDef) else (one.own, "__call__")
                for method in self.methods_of(own, name):
                    self.mark_hook(method)
            elif one not in self.kernel_homes:
                self.mark_hook(one)

    def give_methods(
        self, name: str, positional: list[ValueKind], keywords: Keywords, single: Container[int | str] = ()
    ) -> ValueKind:
        """Give arguments of these kinds to all methods of this name; the kind of what they return. They are kept once
        for all methods, each of which takes them when it is looked at. `single`: the numbers and names of
        those that surely are (see `Kinds`)."""
        place = (METHODS, name)
        self.kinds.changed |= self.collected.note(name, None if None in keywords else len(positional))
        for number, kind in enumerate(positional):
            self.kinds.join(place, number, kind, single=number in single)
        for keyword, kind in keywords.items():
            self.kinds.join(place, keyword or "**", kind, single=keyword in single)
        return self.kinds.get(place, RETURN)

    def take_given(self, method: ast.FunctionDef, bound: bool) -> None:
        """Let a method's parameters be what was given to methods of its name."""
        place = (METHODS, method.name)
        spread = self.kinds.get(place, "**").item()
        a = method.args
        by_place = [*a.posonlyargs, *a.args][1 if bound else 0 :]
        for number, parameter in enumerate((*by_place, *a.kwonlyargs)):
            position = self.kinds.get(place, number) if number < len(by_place) else ValueKind.SCALAR
            given = joined((position, self.kinds.get(place, parameter.arg), spread))
            if self.flow.may_be_called(method) and (number == 0 or self.called_by_triton.is_tensor):
                given = joined((given, self.called_by_triton))
            single = self.kinds.is_single(place, number, parameter.arg, "**") and not self.called_by_triton
            self.kinds.join(method, parameter.arg, given, single=single)
            if (place, parameter.arg) in self.sequences or (
                number < len(by_place) and (place, number) in self.sequences
            ):
                self.note_sequence(method, parameter.arg)
        if a.vararg is not None or a.kwarg is not None:
            by_triton = self.called_by_triton if self.flow.may_be_called(method) else ValueKind.SCALAR
            known = {p.arg for p in (*a.args, *a.kwonlyargs)} | {RETURN, DIRECTLY, "**"}
            given = self.kinds.items_of(place)
            late = [kind for name, kind in given if isinstance(name, int) and name >= len(by_place)]
            others = [kind for name, kind in given if isinstance(name, str) and name not in known]
            for starred, kinds in ((a.vararg, late), (a.kwarg, others)):
                if starred is not None:
                    self.kinds.join(method, starred.arg, self.holder([spread, by_triton, *kinds]))

    def take_as_value(self, function: ast.FunctionDef) -> None:
        """Let the parameters of a function that is a value somewhere be what calls give to such a one: each that names
        no function may be of it. Anything, if a library may call it."""
        place = (METHODS, VALUES)
        spread = self.kinds.get(place, "**").item()
        for number, parameter in enumerate(parameters(function)):
            name = parameter.arg
            given = joined((self.kinds.get(place, number), self.kinds.get(place, name), spread))
            single = not self.called_by_libraries and self.kinds.is_single(place, number, name, "**")
            if parameter in (function.args.vararg, function.args.kwarg):
                given, single = ValueKind.HOLDER, False
            elif self.called_by_libraries:
                given = ValueKind.TENSOR
            self.kinds.join(function, name, given, single=single, shown=not self.called_by_libraries)
            if {(place, number), (place, name), (place, "**")} & self.sequences:
                self.note_sequence(function, name)

    def let_libraries_call(self) -> None:
        """Note that a library, or the graph, may call any function that is a value, with what no call here shows."""
        self.kinds.changed |= not self.called_by_libraries
        self.called_by_libraries = True

    def let_triton_call(self, *, hooks: bool) -> None:
        """Note that Triton may call any function that is a value, and an instance or a class that no call here shows:
        with what a launch gets, which holds tensors. A grid gets that as a dict; `hooks` also by name, and more."""
        self.let_libraries_call()
        kind = ValueKind.TENSOR if hooks else ValueKind.HOLDER
        self.kinds.changed |= kind > self.called_by_triton
        self.called_by_triton = max(kind, self.called_by_triton)

    def take_made(self, fields: list[str]) -> None:
        """Let fields of a class without `__init__` be what was given to unknown classes. Which argument by position is
        which field depends on those of its bases, and on what each field says of itself."""
        place = (METHODS, "__init__")
        numbers = itertools.takewhile(lambda number: (place, number) in self.kinds, itertools.count())
        by_position = [self.kinds.get(place, number) for number in numbers]
        spread = self.kinds.get(place, "**").item()
        for name in fields:
            if by_position or any((place, given) in self.kinds for given in (name, "**")):
                self._share(FIELDS, name)
            self.kinds.join(FIELDS, name, joined((*by_position, self.kinds.get(place, name), spread)))

    def is_iterator(self, node: ast.expr, scope: Scope) -> bool:
        """Whether the value of an expression is one of `makes_iterator`, here or in a function of the pass."""
        if isinstance(node, ast.IfExp | ast.BoolOp | ast.NamedExpr):
            parts = node.values if isinstance(node, ast.BoolOp) else children(node)
            return any(self.is_iterator(part, scope) for part in parts)
        if isinstance(node, ast.Name) and (owner := scope.find(node.id)) is not None:
            return (owner.node, node.id) in self.iterators
        if any((function, RETURN) in self.iterators for function in self._may_call(node, scope)):
            return True
        return makes_iterator(node, scope)

    def is_sequence(self, node: ast.expr, scope: Scope) -> bool:
        """Whether the value of an expression is one of `makes_sequence`, as far as variables, fields, and calls of
        functions by their names show."""
        if isinstance(node, ast.IfExp | ast.BoolOp | ast.NamedExpr):
            parts = node.values if isinstance(node, ast.BoolOp) else children(node)
            return any(self.is_sequence(part, scope) for part in parts)
        if isinstance(node, ast.Attribute):
            places = ((FIELDS, node.attr), ((METHODS, node.attr), RETURN))  # a property is a method
            if any(place in self.sequences for place in places) or makes_sequence(node, scope):
                return True
            member = node.value if node.attr == "value" and isinstance(node.value, ast.Attribute) else None
            return member is not None and (self.own_class(member.value, scope), member.attr) in self.sequences
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return self.is_sequence(node.value, scope)
        if isinstance(node, ast.Subscript):
            put_in = self._put_in(node.value, scope) in self.sequences
            return put_in or any(self.is_sequence(item, home) for item, home in self._items_written(node, scope))
        if isinstance(node, ast.Name) and (owner := scope.find(node.id)) is not None:
            return (owner.node, node.id) in self.sequences
        called = self._may_call(node, scope)
        if any((function, RETURN) in self.sequences for function in called):
            return True
        method = node.func if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
        if method is not None and method.attr in ("get", "setdefault", "pop") and node.args:
            item = ast.copy_location(ast.Subscript(method.value, node.args[0], ast.Load()), node)
            if any(self.is_sequence(part, scope) for part in (item, *node.args[1:])):
                return True
        if isinstance(node, ast.Call) and (picked := self._picked(node, scope)) is not None:
            return picked
        own = self.own_class(node.func, scope) if isinstance(node, ast.Call) else None
        tuples = own is not None and "typing.NamedTuple" in self.bases_of(self.lineage(own))
        own_code = self._named_function(node, scope) is not None or (method is not None and method.attr in self.methods)
        return tuples or (not own_code and makes_sequence(node, scope))

    def _picked(self, node: ast.Call, scope: Scope) -> bool | None:
        """Whether a call that returns one of its arguments, or an item of one, may return a sequence; None for others.
        What a factory makes counts, too."""
        dotted = scope.module.dotted(node.func)
        name = built_in_called(node, scope)
        if dotted in ("dataclasses.field", "collections.defaultdict"):
            made = [k.value for k in node.keywords if k.arg == "default_factory"]
            made += node.args[:1] if dotted == "collections.defaultdict" else []
            return any(
                self.is_sequence(one.body if isinstance(one, ast.Lambda) else ast.Call(one, [], []), scope)
                for one in made
            )
        if dotted == "copy.copy" or (name in ("min", "max") and len(node.args) > 1):
            return any(self.is_sequence(a, scope) for a in node.args)
        if name in ("min", "max", "next") and node.args:
            return self.hands_out_sequences(node.args[0], scope)
        return self.is_sequence(node.args[1], scope) if name == "sum" and len(node.args) > 1 else None

    def hands_out_sequences(self, node: ast.expr, scope: Scope) -> bool:
        """Whether what is taken from an expression, one by one, may be a list, a tuple or a text: from what is written
        out, from a generator of the pass, or from what holds one of these."""
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            self.steps.take(len(node.elts))
            return any(self.is_sequence(item, scope) for item in node.elts)
        if isinstance(node, ast.Constant | ast.JoinedStr):
            return self.is_sequence(node, scope)
        if isinstance(node, ast.Dict):
            return any(self.is_sequence(key, scope) for key in node.keys if key is not None)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            inner = self._opened.get(node)
            return inner is not None and self.is_sequence(node.elt, inner)
        if isinstance(node, ast.Name):
            owner = scope.find(node.id)
            return owner is not None and (owner.node, f"{node.id}[:]") in self.sequences
        if not isinstance(node, ast.Call):
            return False
        if any((function, f"{RETURN}[:]") in self.sequences for function in self._may_call(node, scope)):
            return True
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "values"
            and isinstance(node.func.value, ast.Dict)
        ):
            return any(self.is_sequence(value, scope) for value in node.func.value.values)
        name = built_in_called(node, scope)
        if name == "map" and node.args:
            return self.is_sequence(ast.Call(node.args[0], [], []), scope)
        return name in _SAME_ITEMS and bool(node.args) and self.hands_out_sequences(node.args[0], scope)

    def note_sequences(self, place: object, name: str, value: ast.expr | None, scope: Scope) -> None:
        """Note a variable, a field or a result that is given a list, a tuple or a text, or what hands out such."""
        if value is not None and self.is_sequence(value, scope):
            self.note_sequence(place, name)
        if value is not None and self.hands_out_sequences(value, scope):
            self.note_sequence(place, f"{name}[:]")
        for number, column in enumerate(item_parts.parts_handed_out(value)):
            if any(self.is_sequence(part, scope) for part in column if part is not None):
                self.note_sequence(place, f"{name}[:, {number}]")

    def note_taken(self, target: ast.expr, iterable: ast.expr, scope: Scope, inner: Scope) -> None:
        """Note which names that a loop binds may be lists, tuples or texts."""
        found: list[ast.expr] = []
        if isinstance(target, ast.Tuple):
            zipped = (
                isinstance(iterable, ast.Call) and isinstance(iterable.func, ast.Name) and iterable.func.id == "zip"
            )
            for element, given in zip(target.elts, iterable.args, strict=False) if zipped else ():
                self.note_taken(element, given, scope, inner)
            held = item_parts.dict_of_items(iterable) or iterable
            owner = scope.find(held.id) if isinstance(held, ast.Name) else None
            columns = item_parts.parts_handed_out(held)
            for number, element in enumerate(target.elts):
                known = owner is not None and (owner.node, f"{held.id}[:, {number}]") in self.sequences
                parts = columns[number] if number < len(columns) else ()
                if known or any(self.is_sequence(part, scope) for part in parts if part is not None):
                    found.append(element)
        elif self.hands_out_sequences(iterable, scope):
            found = [target]
        for element in found:
            if isinstance(element, ast.Name) and (owner := inner.find(element.id)) is not None:
                self.note_sequence(owner.node, element.id)

    def _put_in(self, container: ast.expr, scope: Scope) -> tuple[object, str]:
        """The place of what has been put into a variable's or a field's container."""
        if isinstance(container, ast.Attribute):
            return FIELDS, f"{container.attr}[]"
        owner = scope.find(container.id) if isinstance(container, ast.Name) else None
        return (owner.node, f"{container.id}[]") if owner is not None else (None, "")

    def note_item(self, container: ast.expr, value: ast.expr | None, scope: Scope) -> None:
        """Note what is put into a container, if that is a list, a tuple or a text."""
        if value is not None and self.is_sequence(value, scope):
            place = self._put_in(container, scope)
            if place[0] is not None:
                self.note_sequence(*place)

    def _displays(self, node: ast.expr, scope: Scope) -> list[tuple[ast.expr, Scope]]:
        """What is written out for an expression, and where: itself, or all that a variable is given."""
        owner = scope.find(node.id) if isinstance(node, ast.Name) else None
        if owner is None:
            return self._items_written(node, scope) if isinstance(node, ast.Subscript) else [(node, scope)]
        if (place := (owner.node, node.id)) not in self._owned_values:
            self.steps.take(len(walk(owner.node)))
            self._owned_values[place] = owned_values(*place)
        return [(value, owner) for value in self._owned_values[place]]

    def _items_written(self, node: ast.Subscript, scope: Scope) -> list[tuple[ast.expr, Scope]]:
        """What an item may be of a display, or of a variable that holds displays alone, and where it is written."""
        found = []
        for display, home in self._displays(node.value, scope):
            made = isinstance(display, ast.Call) and home.module.dotted(display.func) == "collections.defaultdict"
            items = [display] if made else item_parts.items_at(display, node.slice)
            found += [(item, home) for item in items]
        return found

    def _named_function(self, node: ast.expr, scope: Scope) -> ast.FunctionDef | None:
        return self.host_function(node.func, scope) if isinstance(node, ast.Call) else None

    def _may_call(self, node: ast.expr, scope: Scope) -> list[object]:
        """The functions of the pass that a call may be one of, as far as that is known: all methods of a name are
        one."""
        if not isinstance(node, ast.Call):
            return []
        if (function := self.host_function(node.func, scope)) is not None:
            return [function]
        found: list[object] = [(METHODS, node.func.attr)] if isinstance(node.func, ast.Attribute) else []
        for one in self.flow.held(self.flow.called.get(node)) or ():
            if isinstance(one, Instance):
                found += self.methods_of(one.own, "__call__")
            elif not isinstance(one, ast.ClassDef):
                found.append(one)
        self.steps.take(len(found))
        return found

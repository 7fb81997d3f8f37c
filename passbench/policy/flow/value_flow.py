"""Which functions of a pass each expression that is called can be: `self.rule(n)`, `TABLE[key](x)`.

One walk over the host code notes what is assigned, put in, handed over and returned. Whatever it does not know may be
anything. So a call is known by what it calls only if all ways are known by which a function can have come there.
"""

import ast
from collections.abc import Iterable

from passbench.policy import allowlists as names
from passbench.policy.flow.calls import FlowCalls
from passbench.policy.flow.class_parts import decorator_names, is_plain, is_property, members_of
from passbench.policy.flow.groups import Function, GivenGroups, Held, Instance
from passbench.policy.flow.values import ANYTHING, PassNames
from passbench.policy.nodes import children
from passbench.policy.scopes import RETURN, Scope, open_scope


class ValueFlow(FlowCalls):
    """Follows statements, and answers what can be called where."""

    def __init__(self, pass_: PassNames, special: Iterable[ast.FunctionDef]) -> None:
        super().__init__(pass_)
        self._open: set[ast.FunctionDef] | None = None
        self._read_through: set[ast.ClassDef] | None = None
        self._replacements = {one for one in special if one.name == "replacement_func"}
        self._special = {*special} - self._replacements
        for module in pass_.modules.values():
            for statement in module.tree.body:
                self._statement(statement, pass_.scopes[module.name])
        for (name, table), parts in self._columns.items():
            for number, column in enumerate(parts):
                place = self.groups.place(table, f"{name}[:, {number}]")
                self.groups.join(place, *(self._value(part, pass_.scopes[name]) for part in column))
        for name in self._methods:  # Python and libraries call these
            if name.startswith("__") and name not in ("__init__", "__post_init__", "__call__"):
                self.groups.hand(self._methods_of_name(name), GivenGroups(spread=[ANYTHING]))
        self.groups.settle(self._call_held, self._fields_of, pass_.kernel_homes)

    def held(self, group: int | None) -> set[Held] | None:
        """What a group may hold; None where that is not known."""
        return None if group is None or self._is_lost else self.groups.held(group)

    def is_known(self, function: Function) -> bool:
        """Whether each call of a function that is a value somewhere is known."""
        return not self._is_lost and self.groups.is_known(function)

    def called_by_libraries(self, node: ast.expr) -> set[Held] | None:
        """What of the pass an expression may be that a library gets and calls; None where nothing is known."""
        group = self.handed.get(node, ANYTHING)
        if self._is_lost or group is None:
            return None if self._is_lost else set()
        held = self.held(group)
        return self.groups.open() if held is None else held

    def grids(self, node: ast.Subscript) -> set[Held] | None:
        """What of the pass Triton may call since it stands in `KERNEL[grid]`; None where that is not known."""
        if self._is_lost or node not in self.indexed:
            return None
        index, indexed = self.indices[node], self.indexed[node]
        kernels = self._pass.kernel_homes.keys()
        if index is None or indexed is None or not self.groups.may_launch(indexed, kernels):
            return set()
        return self.held(index)

    def give_up(self) -> bool:
        """Let nothing be known any more. Returns whether that is new."""
        before, self._is_lost = self._is_lost, True
        return not before

    def may_be_called(self, method: ast.FunctionDef) -> bool:
        """Whether a `__call__` or `__init__` may be called by what no rule follows, such as Triton."""
        if self._open is None:
            self._open = set()
            for one in self.groups.open():
                name, own = ("__call__", one.own) if isinstance(one, Instance) else ("__init__", one)
                self._open |= {*self._pass.methods_of(own, name)} if isinstance(own, ast.ClassDef) else set()
        return method.name in ("__call__", "__init__") and (self._is_lost or method in self._open)

    def is_instance(self, node: ast.Attribute) -> bool:
        """Whether an attribute is read off an instance of the pass's classes, or off what has no attributes but its
        own: functions of the pass, numbers, tensors. It is no kernel, class, launch or operator."""
        held = self.held(self.bases.get(node)) or set()
        others = held - self._pass.kernel_homes.keys()
        return others == held and any(isinstance(one, Instance) for one in held) and not any(map(_is_class, held))

    def classes_given_to_torch(self) -> set[ast.ClassDef]:
        """Classes that torch may get, or an instance of: its functions in Python call methods of whatever they get,
        with what they get beside it: `torch.split(a, b)` is `a.split(b, 0)`."""
        if self._is_lost:
            return {*self._pass.class_homes}
        found = self._given_to_torch()
        return {one.own for one in found if isinstance(one, Instance)} | {*filter(_is_class, found)}

    def _given_to_torch(self) -> set[Held]:
        given = [self.held(group) for group in {*self.given_to_torch} - {None}]
        return set().union(*(self.groups.open() if held is None else held for held in given))

    def is_read_through(self, own: ast.ClassDef) -> bool:
        """Whether a method of instances may be read off a class that is a value, as in `PLANS[key].start`, so that it
        may be called on anything; and whether torch or a library may do that."""
        if self._is_lost:
            return True
        if self._read_through is None:
            self._read_through = {*filter(_is_class, self.groups.open() | self._given_to_torch())}
            members: dict[int, set[str]] = {}
            for node, group in self.bases.items():
                members.setdefault(self.groups.find(group), set()).add(node.attr)
            for group, names_read in members.items():
                for one in filter(_is_class, self.held(group) or ()):
                    self._pass.steps.take(len(lineage := self._pass.lineage(one)))
                    methods = [s for home in lineage for s in home.body if isinstance(s, ast.FunctionDef)]
                    if any(s.name in names_read and is_plain(s) and not is_property(s) for s in methods):
                        self._read_through.add(one)
        return own in self._read_through

    def kernels_given(self, kernel: ast.FunctionDef, parameter: str) -> set[ast.FunctionDef]:
        """The kernels that a parameter of a kernel is, where launches give it these and nothing that may be host code;
        empty where that is not known."""
        held = self.held(self.groups.place(kernel, parameter)) or set()
        return held if self._pass.kernel_homes.keys() >= held else set()

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        self._pass.steps.take()
        match node:
            case ast.FunctionDef():
                if node not in self._special and scope.module.kernels.get(node.name) is not node:
                    self._function(node, scope)
                else:
                    self._outside(node, scope)
            case ast.ClassDef():
                self._class(node, scope)
            case ast.Return():
                if node.value is not None:
                    group = self.groups.join(self.groups.place(scope.node, RETURN), self._value(node.value, scope))
                    if scope.node in self._replacements and self._pass.host_function(node.value, scope) is None:
                        self.groups.join(ANYTHING, group)  # the graph calls it
            case ast.Assign() | ast.AnnAssign() if self._is_table(node, scope):
                pass
            case ast.Assign():
                value = self._value(node.value, scope)
                for target in node.targets:
                    self._bind(target, value, scope)
            case ast.AnnAssign() | ast.AugAssign():
                value = self._value(node.value, scope) if node.value is not None else None
                self._bind(node.target, value, scope)
            case ast.For():
                self._iterate(node.target, node.iter, scope, scope)
                self._block([*node.body, *node.orelse], scope)
            case ast.With():
                for item in node.items:
                    value = self._value(item.context_expr, scope)
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, self.groups.join(ANYTHING, value), scope)
                self._block(node.body, scope)
            case ast.If() | ast.While():
                self._value(node.test, scope)
                self._block([*node.body, *node.orelse], scope)
            case ast.Try():
                for handler in node.handlers:
                    if handler.name is not None:
                        self.groups.join(ANYTHING, self._variable(handler.name, scope))
                    self._block(handler.body, scope)
                self._block([*node.body, *node.orelse, *node.finalbody], scope)
            case ast.Expr() | ast.Assert() | ast.Raise() | ast.Delete():
                for part in children(node):
                    self._value(part, scope)
            case ast.Match():
                subject = self._value(node.subject, scope)
                for case in node.cases:
                    self._captures(case.pattern, subject, scope)
                    if case.guard is not None:
                        self._value(case.guard, scope)
                    self._block(case.body, scope)
            case ast.Pass() | ast.Break() | ast.Continue() | ast.Import() | ast.ImportFrom():
                pass
            case ast.Global() | ast.Nonlocal():
                pass
            case _:
                self._is_lost = True

    def _is_table(self, node: ast.Assign | ast.AnnAssign, scope: Scope) -> bool:
        """Whether a statement binds a table whose columns are followed one by one."""
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        at_top = isinstance(scope.node, ast.Module) and isinstance(target, ast.Name)
        return at_top and (scope.module.name, target.id) in self._columns

    def _block(self, body: Iterable[ast.stmt], scope: Scope) -> None:
        for statement in body:
            self._statement(statement, scope)

    def _captures(self, pattern: ast.pattern, subject: int | None, scope: Scope) -> None:
        for node in ast.walk(pattern):
            name = getattr(node, "name", None) or getattr(node, "rest", None)
            if isinstance(node, ast.pattern) and isinstance(name, str):
                self.groups.join(self._variable(name, scope), subject)
            if isinstance(node, ast.MatchClass):
                self._is_lost = True

    def _function(self, node: ast.FunctionDef, scope: Scope, body_scope: Scope | None = None) -> Scope:
        self._outside(node, scope)
        inner = open_scope(scope.module, node, body_scope or scope)
        self._block(node.body, inner)
        return inner

    def _class(self, own: ast.ClassDef, scope: Scope) -> None:
        if own not in self._pass.class_homes:
            self._is_lost = True
            return
        inner = Scope(scope.module, own, scope, {n for _, n in members_of(own)} - self._methods.keys())
        functional = any(scope.module.dotted(base) == names.FUNCTION for base in own.bases)
        for decorator in own.decorator_list:
            self.groups.join(ANYTHING, self._value(decorator, scope))
        for statement in own.body:
            if isinstance(statement, ast.FunctionDef):
                plain, first = is_plain(statement), [*statement.args.posonlyargs, *statement.args.args][:1]
                static = "staticmethod" in decorator_names(statement)
                for parameter in first if static and functional else ():  # the context of a call
                    self.groups.join(ANYTHING, self.groups.place(statement, parameter.arg))
                for parameter in first if not static else ():
                    derived = self._pass.derived(own)
                    held = map(Instance, derived) if plain else derived
                    self.groups.join(self.groups.place(statement, parameter.arg), self.groups.new(*held))
                if first and not plain and not static:
                    self._made_by[statement] = first[0].arg, own
                if plain and first:
                    self._instances[statement] = {first[0].arg}
                    self._classes[statement] = own
                self._outside(statement, inner)
                self._block(statement.body, open_scope(scope.module, statement, scope))
            elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                value = self._value(statement.value, inner)
                facts = self._pass.facts(own)
                if facts.is_enumeration and facts.initial is not None:
                    self.groups.pass_on(facts.initial, GivenGroups(spread=[value]), 1)
                if facts.is_enumeration and facts.by_fields:
                    self.groups.join(*(self._field(name) for name in facts.fields), value)
                bound = not isinstance(statement.value, ast.List | ast.Tuple | ast.Dict | ast.Set)
                if bound and value is not None:
                    self.groups.note_bound(value)
                for target in statement.targets if isinstance(statement, ast.Assign) else [statement.target]:
                    for name in (n.id for n in ast.walk(target) if isinstance(n, ast.Name)):
                        self.groups.join(self._field(name), value)
            elif not isinstance(statement, ast.AnnAssign | ast.Pass | ast.Expr):
                self._is_lost = True


def _is_class(one: Held) -> bool:
    return isinstance(one, ast.ClassDef)

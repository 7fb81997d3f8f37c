"""The static policy on `replacement_func`: which functions of the pass the graph calls, and with what.

It returns a function by its name, a lambda, a function that a function of the pass makes, `functools.partial` of one, a
static or class method, or an instance with `__call__`. Each gets what `replacement_args` picks.
"""

import ast
from collections import Counter
from dataclasses import dataclass, replace

from passbench.policy import allowlists as names
from passbench.policy.flow.class_parts import decorator_names, is_plain
from passbench.policy.forms.plain_form import returned_by_decorators
from passbench.policy.host.classes import MAKING
from passbench.policy.host.parameters import numbers_of_classes, parameter_kinds, picked
from passbench.policy.host.statements import Statements
from passbench.policy.modules import Module
from passbench.policy.nodes import bound_names, walk
from passbench.policy.scopes import Scope, ValueKind, own_nodes, owned_values, parameters

_DEEPEST = 8
_ADVICE = (
    "write `return NAME` with a function of this directory that launches your kernels; a lambda, a function defined"
    " inside, functools.partial(NAME, …), CLASS.METHOD of a static method and an instance with __call__ will do, too"
)


@dataclass(frozen=True)
class _GraphCall:
    """A call by the graph of a rule's module: `before` and `named` are what `functools.partial` puts before and beside
    what `replacement_args` picks. `depth` counts what has been seen through."""

    rule: Module
    before: tuple[ValueKind, ...] = ()
    named: tuple[tuple[str, ValueKind], ...] = ()
    depth: int = 0


class Replacements(Statements):
    """Follows what replacements get from the graph."""

    def hand_to_graph(self, module: Module) -> None:
        """Check the `replacement_func` of a listed module as the host code that it is."""
        function = module.functions.get("replacement_func")
        if function is None:
            return
        self._replacement_funcs[function] = module
        if function.decorator_list:
            self._refuse(function, module)
        scope = self.opened(function, self.scopes[module.name])
        self._clashes(scope)
        self._block(function.body, scope)
        if not any(isinstance(node, ast.Return) for node in own_nodes(function)):
            self._refuse(function, module)

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        rule = self._replacement_funcs.get(scope.node) if isinstance(node, ast.Return) else None
        if rule is None:
            super()._statement(node, scope)
        elif node.value is None or not self._hands_on(node.value, scope, _GraphCall(rule)):
            self._refuse(scope.node, rule)

    def _refuse(self, function: ast.FunctionDef, module: Module) -> None:
        self.find("replacement_func", module, function, f"replacement_func only returns a function; {_ADVICE}")

    def _hands_on(self, value: ast.expr, scope: Scope, call: _GraphCall) -> bool:
        """Let a function have the arguments of the graph, whatever expression names it. Returns whether all that the
        expression can be is such a function."""
        self.steps.take()
        if call.depth > _DEEPEST:
            return False
        call = replace(call, depth=call.depth + 1)
        function = self.host_function(value, scope)
        if function is not None:
            self.seen.add(value)
            self.check_callable(function, value, scope)
            home = self.homes.get(function, scope.module)
            self.pass_arguments(function, self._kinds(function, home, call, 0), dict(call.named), _single(call))
            return True
        match value:
            case ast.Lambda():
                self._lambda(value, scope, bound=True)
                kinds = self._kinds(value, scope.module, call, 0)
                self.pass_arguments(value, kinds, dict(call.named), _single(call))
            case ast.IfExp():
                self.test(value.test, scope)
                self.to_graph.update((value.body, value.orelse) if value in self.to_graph else ())
                sides = [self._hands_on(side, scope, call) for side in (value.body, value.orelse)]
                return all(sides)
            case ast.Call():
                return self._is_returned(value, scope, call)
            case ast.Name() | ast.Attribute():
                return self._member(value, scope, call) or self._is_variable(value, scope, call)
            case _:
                return False
        self.seen.add(value)
        return True

    def _kinds(
        self, function: ast.FunctionDef | ast.Lambda, home: Module, call: _GraphCall, bound: int
    ) -> list[ValueKind]:
        """Kinds of the arguments, in order, of a function that has `bound` parameters for an instance or a class."""
        items = _picked(call)
        return [*call.before, *parameter_kinds(self, call.rule, home, function, items, bound + len(call.before))]

    def _is_returned(self, value: ast.Call, scope: Scope, call: _GraphCall) -> bool:
        """The same for what a call returns: a partial function, an instance, or what a function of the pass defines."""
        if scope.module.dotted(value.func) == "functools.partial":
            return self._is_partial(value, scope, call)
        own, function = self.own_class(value.func, scope), self.host_function(value.func, scope)
        if own is not None:
            self.kind(value, scope)
            return self._has_method(own, "__call__", call)
        if function is None or function not in self.homes or not _returns(function):
            return False
        home = self.scopes[self.homes[function].name]
        inner = self.opened(function, home)
        once = self._is_used_once(function.name)
        found = []
        for returned in _returns(function):
            if self._is_parameter(returned, function):
                place = [p.arg for p in parameters(function)].index(returned.id)
                uses = sum(isinstance(n, ast.Name) and n.id == returned.id for n in walk(function))
                self.to_graph.update(value.args[place : place + 1] if once and uses == 1 else ())
                found.append(place < len(value.args) and self._hands_on(value.args[place], scope, call))
                continue
            if once and isinstance(returned, ast.Name):
                self.to_graph.add(returned)
            found.append(self._hands_on(returned, inner, call))
        self.kind(value, scope)
        return all(found)

    @staticmethod
    def _is_parameter(node: ast.expr | None, function: ast.FunctionDef) -> bool:
        """Whether an expression is a parameter of a function that is bound nowhere else in it."""
        if not isinstance(node, ast.Name) or node.id not in {a.arg for a in function.args.args}:
            return False
        return bound_names(function)[node.id] == 1

    def _is_partial(self, value: ast.Call, scope: Scope, call: _GraphCall) -> bool:
        if not value.args or any(isinstance(a, ast.Starred) for a in value.args):
            return False
        rest = ast.copy_location(ast.Call(value.func, value.args[1:], value.keywords), value)
        positional, keywords = self._given(rest, scope)
        if None in keywords:
            return False
        self.seen.add(value)
        before = (*positional, *call.before)
        named = (*keywords.items(), *call.named)
        return self._hands_on(value.args[0], scope, replace(call, before=before, named=named))

    def _has_method(self, own: ast.ClassDef, name: str, call: _GraphCall) -> bool:
        """Let the method of this name of a class's instances have the arguments of the graph. Python alone calls those
        that make an instance: they have what it is made with."""
        if name in MAKING:
            return False
        found = self.methods_of(own, name)
        if not found or not is_plain(found[0]) or name in self.properties:
            return False
        kinds = self._kinds(found[0], self.class_homes[self.classes_of_methods[found[0]]], call, 1)
        self.give_methods(name, kinds, dict(call.named), _single(call))
        return True

    def _member(self, value: ast.expr, scope: Scope, call: _GraphCall) -> bool:
        """The same for `CLASS.method`, `FUNCTION.apply` of an autograd function, and `INSTANCE.method`."""
        if not isinstance(value, ast.Attribute):
            return False
        own = self.own_class(value.value, scope)
        if own is None:
            instance = self.class_of(value.value, scope)
            if instance is None or value.attr not in self.methods:
                return False
            self.kind(value.value, scope)
            self.seen.add(value)
            return self._has_method(instance, value.attr, call)
        methods = self.facts(own).methods
        applied = value.attr == "apply" and "apply" not in methods and names.FUNCTION in self.bases_of([own])
        found = methods.get("forward" if applied else value.attr, ())
        if not found or (not applied and is_plain(found[0])):
            return False
        self.base_kind(value, scope, called=True)
        self.seen.add(value)
        for method in found:
            bound = applied or "classmethod" in decorator_names(method)
            kinds = self._kinds(method, self.class_homes[own], call, int(bound))
            given = [*[ValueKind.SCALAR] * bound, *kinds]
            self.pass_arguments(method, given, dict(call.named), _single(call, int(bound)))
        return True

    def _is_variable(self, value: ast.expr, scope: Scope, call: _GraphCall) -> bool:
        """The same for a variable of a module or of `replacement_func`, whatever is assigned to it."""
        place = scope.module.sibling_function(scope.module.dotted(value) or "")
        owner: Scope | None = None
        if place is not None and place[0] in self.modules:
            owner, name = self.scopes[place[0]], place[1]
        elif isinstance(value, ast.Name):
            owner, name = scope.find(value.id), value.id
        if owner is None or name in owner.module.declared_global or (name in owner.lambdas and place is not None):
            return False
        values = owned_values(owner.node, name)
        self.steps.take(len(walk(owner.node)))
        if isinstance(owner.node, ast.Module) and returned_by_decorators(
            name, owner.node.body, owner.module.functions.get
        ):
            self.kind(value, scope)
            self.let_libraries_call()  # the graph calls what the decorators return
            return True
        if not values:
            return False
        if self._is_used_once(name):
            self.to_graph.update(values)
        self.seen.add(value)
        found = [self._hands_on(one, owner, call) for one in values]
        return all(found)

    def _is_used_once(self, name: str) -> bool:
        """Whether one place of the pass reads a name, whatever it stands for there."""
        if self._times_used is None:
            self._times_used = Counter()
            for node in (n for module in self.modules.values() for n in walk(module.tree)):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                    self._times_used[node.id] += 1
                elif isinstance(node, ast.Attribute | ast.alias):
                    self._times_used[(node.attr if isinstance(node, ast.Attribute) else node.name)] += 2
        return self._times_used[name] == 1

    def note_class_numbers(self) -> None:
        """Note the parameters of replacements that are the number of classes of the graph's own `one_hot`."""
        counted: dict[ast.FunctionDef, list[set[str]]] = {}
        for name in self._rules:
            module = self.modules.get(name)
            found = module and self._named_replacement(module)
            if found and module.functions.get("replacement_args"):
                counted.setdefault(found, []).append(numbers_of_classes(module, found))
        some = any(map(any, counted.values()))
        used = self._used_names() if some else set()
        for function, sets in counted.items() if some else ():
            if function.name not in used:  # the graph alone calls it
                self.class_numbers |= {(function, name) for name in set.intersection(*sets)}

    def _used_names(self) -> set[str]:
        """Names that host code and kernels use, but for what `replacement_func` returns and `torch.fx.wrap` gets."""
        found: set[str] = set()
        for module in self.modules.values():
            for statement in module.tree.body:
                if isinstance(statement, ast.Expr) and self.wraps(statement.value, self.scopes[module.name]):
                    continue
                if statement is not module.functions.get("replacement_func"):
                    used = (n for n in walk(statement) if isinstance(n, ast.Name | ast.Attribute))
                    found |= {n.id if isinstance(n, ast.Name) else n.attr for n in used}
        return found

    def _named_replacement(self, module: Module) -> ast.FunctionDef | None:
        """The function that `replacement_func` returns where it does nothing else."""
        function = module.functions.get("replacement_func")
        body = [s for s in function.body if not is_docstring(s)] if function is not None else []
        if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
            return None
        return self.host_function(body[0].value, self.scopes[module.name])


def _picked(call: _GraphCall) -> list[ast.expr]:
    arguments = call.rule.functions.get("replacement_args")
    return picked(arguments) if arguments is not None else []


def _single(call: _GraphCall, bound: int = 0) -> frozenset[int]:
    """The numbers of the arguments that are what the pattern has found, or a number which is written out: no list."""
    items = enumerate(_picked(call), bound + len(call.before))
    return frozenset(
        n
        for n, item in items
        if isinstance(item, ast.Name) or (isinstance(item, ast.Constant) and not isinstance(item.value, str | bytes))
    )


def is_docstring(node: ast.stmt) -> bool:
    """Whether a statement is a text that does nothing."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _returns(function: ast.FunctionDef) -> list[ast.expr]:
    """What a function returns; empty if it may return nothing."""
    found = [node.value for node in own_nodes(function) if isinstance(node, ast.Return)]
    return [] if None in found else found

"""The static policy on calls by a plain name: of built-ins, and of variables."""

import ast
from collections.abc import Iterable, Sequence

from passbench.policy import allowlists as names
from passbench.policy import operators
from passbench.policy.flow.class_parts import is_plain
from passbench.policy.flow.groups import Instance
from passbench.policy.host.bindings import HOOK, METHODS
from passbench.policy.host.operator_calls import OperatorCall, OperatorCalls
from passbench.policy.nodes import bound_names, quoted, walk
from passbench.policy.scopes import RETURN, Scope, ValueKind, joined, parameters

_KEYED = frozenset("sorted min max".split())
_PICKING = _KEYED | {"map", "filter"}
_CALLING = frozenset(("map", "iter"))
_OF_PRINT = frozenset(("sep", "end", "flush"))
_TAKING_NUMBERS = frozenset("round enumerate zip".split())


class BuiltInCalls(OperatorCalls):
    """Follows kinds through Python's built-ins, and refuses those that read values."""

    made_plain: set[ast.expr]
    """What `int` and `float` make a number of Python's of, where it stands in their call."""

    def _call_name(self, node: ast.Call, name: str, scope: Scope) -> ValueKind:
        owner = scope.find(name)
        if name == "isinstance" and owner is None and len(node.args) == 2 and not node.keywords:
            self.kind(node.args[0], scope)
            if not self._is_type(node.args[1], scope):
                message = "isinstance is for torch.Tensor, int, float, bool, str, tuple and list, written out"
                self.find("forbidden_name", scope.module, node, message)
            return ValueKind.SCALAR
        if name == "hasattr" and owner is None:
            return self._has_attribute(node, scope)
        if name == "type" and owner is None:
            message = "type() is for comparisons such as type(x) is int; elsewhere write isinstance, or name the class"
            self.find("forbidden_name", scope.module, node, message)
            return ValueKind.SCALAR
        if name in ("int", "float") and owner is None and len(node.args) == 1:
            self.made_plain.update(node.args)
        if name == "print" and owner is None:
            node = _without_stream(node, scope)
            if not all(k.arg in _OF_PRINT or self._holds_options_of_print(k, scope) for k in node.keywords):
                message = "print goes to the log; it takes sep, end, flush and file=sys.stderr alone"
                self.find("forbidden_name", scope.module, node, message)
        if owner is None and (rest := self._without_handed_on(node, name, scope)) is not None:
            return self._call_name(rest, name, scope)
        if name == "map" and owner is None and (mapped := self._mapped(node, scope)) is not None:
            return mapped
        positional, keywords = self._arguments(node, scope)
        given = max((*positional, *keywords.values()), default=ValueKind.SCALAR)
        if name in ("str", "repr") and owner is None:
            for argument, kind in zip(node.args, positional, strict=True):
                shown = ast.FormattedValue(argument, ord(name[0]), None)
                self.check_text(ast.copy_location(shown, argument), kind, scope)
        if owner is not None and (function := self._only_lambda(owner, name)) is not None:
            single = self.single_arguments(node, scope)
            found = self._pass_starred(node, function, *self._given(node, scope), single)
            self._note_sequences(function, node, scope)
            return found
        if owner is not None:
            if self.flow.held(self.flow.called.get(node)):
                return self.call_unnamed(node, positional, keywords, scope)
            if name in owner.lambdas and given.holds_tensors:
                message = f"{name} is a lambda and gets a tensor; write a function with def"
                self.find("dynamic_call", scope.module, node, message)
            own = self.class_of(node.func, scope)
            if own is not None and self.methods_of(own, "__call__") and "__call__" not in self.stored_names:
                return self._give(node, "__call__", positional, keywords, scope)
            return self.call_unnamed(node, positional, keywords, scope)
        if owner is None and _calls_a_value(node, name):
            self.let_libraries_call()
        made = self._made_by_called(node, name, scope)
        if made.holds_tensors and name not in _CALLING:
            self.read(f"{name}() reads what it calls returns, which may be a tensor", scope, node)
        returned = self.returned((*positional, *keywords.values())) if name in _CALLING else ValueKind.SCALAR
        returned = max(returned, self.holder([made]) if name in _CALLING else ValueKind.SCALAR)
        if name == "iter" and node.args and isinstance(node.args[0], ast.Lambda):
            returned = max(returned, self.holder([self.called_lambda(node.args[0], ValueKind.SCALAR, scope)]))
        if name == "iter" and len(positional) > 1 and max(returned, given).holds_tensors:
            self.read("iter() compares what the function returns with its second argument", scope, node)
        if returned.holds_tensors:
            return returned
        if name not in names.HOST_BUILTINS:
            self.unknown(name, node, scope.module)
            return ValueKind.SCALAR  # one finding is enough
        if name in _TAKING_NUMBERS and joined(_numbers_given(node, name, positional, keywords)).holds_tensors:
            self.read(f"{name}() takes a number there", scope, node)
        if name in names.COMPUTING_BUILTINS:
            if scope.hook and given.holds_tensors:
                self.find("hook", scope.module, node, HOOK)
            if name == "sum" and (len(positional) > 1 or keywords):
                return given.item()  # of lists it is a list with the tensors that they hold
            return ValueKind.OWN if given.holds_tensors else min(given.item(), ValueKind.EITHER)
        if name in ("set", "frozenset"):
            self.check_order(node, given, scope)
        if name in names.ERRORS and given.holds_tensors:
            self.read("what an error is made with can be read off its text", scope, node)
        if name in names.ERRORS and node.keywords:
            self.find("forbidden_name", scope.module, node, "an error keeps what it is given by name; give it a text")
        keys = (name in ("set", "frozenset") and given.holds_tensors) or (
            name == "dict" and self._has_keys(node, scope)
        )
        if name in names.READING_BUILTINS | {"range", "slice"} and given.holds_tensors:
            self.read(f"{name}() of a tensor needs its values", scope, node)
            return ValueKind.SCALAR
        if keys:
            self.read("a tensor is no key: it stands for itself alone, not for its values", scope, node)
        if name in _PICKING and given is ValueKind.ADDRESS:
            return given
        if name in names.READING_BUILTINS or name in ("len", "range", "callable"):
            return ValueKind.SCALAR
        return given.item() if name == "next" else self.holder([given])

    def _holds_options_of_print(self, keyword: ast.keyword, scope: Scope) -> bool:
        """Whether `**options` is a parameter of a function which all calls give options of `print` alone, and which
        reads it nowhere but there."""
        options = keyword.value.id if keyword.arg is None and isinstance(keyword.value, ast.Name) else None
        function = owner.node if (owner := scope.find(options or "")) is not None else None
        if (
            not isinstance(function, ast.FunctionDef)
            or function.args.kwarg is None
            or function.args.kwarg.arg != options
        ):
            return False
        nodes = walk(function)
        self.steps.take(len(nodes))
        named = sum(isinstance(n, ast.Name) and n.id == options for n in nodes) + bound_names(function)[options] - 1
        handed = sum(isinstance(n, ast.Call) and any(k.value is keyword.value for k in n.keywords) for n in nodes)
        by_anyone = function in self.escaped | self.hooks or function not in self.homes
        return named == handed == 1 and not by_anyone and self.names_given.get(function, set()) <= _OF_PRINT

    def _has_keys(self, node: ast.Call, scope: Scope) -> bool:
        """Whether `dict(zip(keys, values))`, or `dict` of pairs that are written out, gets tensors as keys."""
        pairs = node.args[0] if node.args else None
        if isinstance(pairs, ast.Call) and isinstance(pairs.func, ast.Name) and pairs.func.id == "zip" and pairs.args:
            return self.kind(pairs.args[0], scope).holds_tensors
        parts = self._parts_of_items(pairs, scope) if isinstance(pairs, ast.List | ast.Tuple) else None
        return bool(parts) and parts[0].holds_tensors

    def _only_lambda(self, owner: Scope, name: str) -> ast.Lambda | None:
        """The lambda that a variable holds, where it is given no other value and Triton does not call it."""
        found = owner.lambdas.get(name, ())
        if len(found) != 1 or found[0] in self.hooks or name in owner.module.declared_global:
            return None
        if (owner.node, name) not in self.given_once:
            nodes = walk(owner.node)
            self.steps.take(len(nodes))
            stores = sum(isinstance(n, ast.Name) and n.id == name and not isinstance(n.ctx, ast.Load) for n in nodes)
            stores += sum(
                name in (getattr(n, "name", None), getattr(n, "asname", None)) for n in nodes
            )  # of a case, say
            own = parameters(owner.node) if isinstance(owner.node, ast.FunctionDef | ast.Lambda) else ()
            stores += sum(parameter.arg == name for parameter in own)
            shared = any(isinstance(n, ast.Nonlocal) and name in n.names for n in nodes)
            self.given_once[owner.node, name] = stores == 1 and not shared
        return found[0] if self.given_once[owner.node, name] else None

    def _mapped(self, node: ast.Call, scope: Scope) -> ValueKind | None:
        """`map` of a function of the pass, a lambda or one of torch's operators; None for any other."""
        if len(node.args) < 2 or node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            return None
        handed, *rest = node.args
        dotted = scope.module.dotted(handed) or ""
        stored = operators.stored_name(dotted) if dotted.startswith("torch.") else None
        items = [self.kind(a, scope).item() for a in rest]
        if stored is None:
            returned = self.called_by_library(handed, items, scope)
            return None if returned is None else self.holder([returned])
        made = ast.copy_location(ast.Call(handed, rest, []), node)
        return self.holder([self._library(OperatorCall(made, dotted, stored, rest, items, {}, scope))])

    def called_back(
        self, function: ast.FunctionDef | ast.Lambda, given: list[ValueKind], node: ast.expr, scope: Scope
    ) -> ValueKind:
        """A library calls a function of the pass, which the node names, with arguments of these kinds."""
        self.seen.add(node)
        self.check_callable(function, node, scope)
        return self.pass_arguments(function, given, {})

    def called_lambda(self, node: ast.Lambda, given: ValueKind, scope: Scope) -> ValueKind:
        """A library calls a lambda, which is written out there, with arguments of this kind."""
        self.seen.add(node)
        inner = self.opened(node, scope, hook=scope.hook)
        for parameter in parameters(node):
            self.check_free(parameter.arg, node, scope)
            self.kinds.join(node, parameter.arg, ValueKind.SCALAR)  # it may be a list
        self.enter(node, scope, given)
        return self.kind(node.body, inner)

    def called_by_library(self, called: ast.expr, given: list[ValueKind], scope: Scope) -> ValueKind | None:
        """What is returned to a library that calls a function of the pass with arguments of these kinds: one that is
        named, with some arguments fixed or without, a lambda, a method of an instance, or what a variable holds. None
        for any other expression."""
        function = self.host_function(called, scope)
        if function is not None:
            return self.called_back(function, given, called, scope)
        if isinstance(called, ast.Lambda):
            self.pass_arguments(called, given, {})
            return self.called_lambda(called, ValueKind.SCALAR, scope)
        if isinstance(called, ast.Call) and scope.module.dotted(called.func) == "functools.partial":
            plain = called.args and not called.keywords and not any(isinstance(a, ast.Starred) for a in called.args)
            function = self.host_function(called.args[0], scope) if plain else None
            if function is None:
                return None
            self.seen.add(called)
            fixed = [self.handed_kind(a, scope) for a in called.args[1:]]
            return self.called_back(function, [*fixed, *given], called.args[0], scope)
        if self.methods_read(called, scope):
            self.seen.add(called)
            self.base_kind(called, scope, called=True)
            return self.give_methods(called.attr, given, {})
        owner = scope.find(called.id) if isinstance(called, ast.Name) else None
        held = self.flow.held(self.flow.handed.get(called)) if owner is not None else None
        if not held or not all(isinstance(one, ast.Lambda) or one in self.homes for one in held):
            return None
        self.steps.take(len(held))
        self.kind(called, scope)
        return joined(self.called_back(one, given, called, scope) for one in held)

    def order_by(self, key: ast.expr, items: list[ValueKind], what: str, scope: Scope) -> None:
        """A library orders by what `key` returns for items of these kinds."""
        if isinstance(key, ast.Name) and key.id in names.HANDED_ON and scope.find(key.id) is None:
            if key.id == "str" and ValueKind.ADDRESS in items:
                message = f"{what} orders by texts that may have an address; give the class a __repr__"
                self.find("forbidden_name", scope.module, key, message)
            return
        returned = self.called_by_library(key, items, scope)
        if returned is None:
            self.kind(key, scope)
            self.let_libraries_call()
            computes = (scope.module.dotted(key) or "").startswith("torch.")
            returned = ValueKind.TENSOR if computes else self.returned_by(key, scope)
        if returned.holds_tensors:
            self.read(f"{what} reads what {quoted(key)} returns, which may be a tensor", scope, key)

    def methods_read(self, node: ast.expr, scope: Scope) -> Sequence[ast.FunctionDef]:
        """The methods of the pass that an attribute may be, read off an instance of the pass's, or static ones off
        a class; empty where it may be something else."""
        if not isinstance(node, ast.Attribute) or node.attr in self.stored_names or node.attr in self.properties:
            return ()
        if scope.module.dotted(node) is not None and not scope.module.is_of_sibling(node):
            return ()
        if (named := self.own_class(node.value, scope)) is not None:
            found = self.methods_of(named, node.attr)
            return () if any(map(is_plain, found)) else found
        own = self.class_of(node.value, scope)
        if own is not None and node.attr in self.methods:
            return self.methods_of(own, node.attr)
        return self.methods.get(node.attr, ()) if node.attr in self.fields else ()

    def returned(self, given: Iterable[ValueKind]) -> ValueKind:
        """What functions of the pass return that may be among arguments of these kinds, to be called by a library."""
        if ValueKind.ADDRESS not in given:
            return ValueKind.SCALAR
        self.steps.take(len(self.escaped))
        return self.holder([self.kinds.get(function, RETURN) for function in self.escaped])

    def returned_by_members(self, name: str) -> ValueKind:
        """What methods of this name return to a library that calls them with nothing of the pass's. A field may hold
        any function."""
        return ValueKind.HOLDER if name in self.stored_names else self.kinds.get((METHODS, name), RETURN)

    def _made_by_called(self, node: ast.Call, name: str, scope: Scope) -> ValueKind:
        """What is returned to a built-in by a value that it calls, if it calls one."""
        called = [k.value for k in node.keywords if k.arg in ("key", None)] if name in _KEYED else []
        if name in ("map", "filter", "iter") and (
            len(node.args) > 1 or any(isinstance(a, ast.Starred) for a in node.args)
        ):
            called = node.args[:1]
        return joined(self.returned_by(one, scope) for one in called)

    def returned_by(self, called: ast.expr, scope: Scope) -> ValueKind:
        """What is returned to a library that calls the value of an expression; its own functions, and built-ins, return
        nothing of the pass."""
        dotted = scope.module.dotted(called)
        if dotted is not None and scope.module.sibling_function(dotted) is None:
            return ValueKind.SCALAR
        if isinstance(called, ast.Name) and scope.find(called.id) is None:
            return ValueKind.SCALAR
        function = called if isinstance(called, ast.Lambda) else self.host_function(called, scope)
        held = {function} if function is not None else self.flow.called_by_libraries(called)
        self.steps.take(len(held or ()))
        results = [ValueKind.TENSOR] if held is None else []
        for one in held or ():
            methods = self.methods_of(one.own, "__call__") if isinstance(one, Instance) else (one,)
            results += [self.kinds.get(method, RETURN) for method in methods]
        return joined(results)

    def _without_handed_on(self, node: ast.Call, name: str, scope: Scope) -> ast.Call | None:
        """`map(int, sizes)` as `map(sizes)`, `max(tables, key=len)` as `max(tables)`: such a built-in makes no more of
        what is no tensor. A key of the pass, and what it filters by, is called with the items. None for other calls."""
        args, keywords = list(node.args), list(node.keywords)
        if name == "map" and len(args) > 1:
            handed = args.pop(0)
        elif name in _KEYED and (keys := [k for k in keywords if k.arg == "key"]):
            handed = keys[0].value
            keywords.remove(keys[0])
        elif name == "filter" and len(args) > 1:
            handed = args.pop(0)
        else:
            return None
        rest = ast.copy_location(ast.Call(node.func, args, keywords), node)
        items = [max(kind, kind.item()) for kind in (self.kind(a, scope) for a in args)]
        item = max(items, default=ValueKind.SCALAR)
        if name in _KEYED:
            self.order_by(handed, [item], f"{name}()", scope)
            return rest
        returned = self.called_by_library(handed, [item], scope) if name != "map" else None
        if returned is not None:
            if returned.holds_tensors:
                self.read(f"{name}() reads what {quoted(handed)} returns, which may be a tensor", scope, node)
            return rest
        if not isinstance(handed, ast.Name) or handed.id not in names.HANDED_ON or scope.find(handed.id) is not None:
            return None
        for argument in args if handed.id == "str" else ():
            self.check_text(argument, self.kind(argument, scope).item(), scope)
        return rest

    def _has_attribute(self, node: ast.Call, scope: Scope) -> ValueKind:
        """`hasattr(tl, "NAME")`: whether a module that a pass may use, or a value, has a public name."""
        name = node.args[1].value if len(node.args) == 2 and isinstance(node.args[1], ast.Constant) else None
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_") or node.keywords:
            self.find("forbidden_name", scope.module, node, "hasattr takes a value and a public name, written out")
        if node.args and scope.module.dotted(node.args[0]) not in names.MODULES | {"torch.version"}:
            self.kind(node.args[0], scope)
        return ValueKind.SCALAR

    def _is_type(self, node: ast.expr, scope: Scope) -> bool:
        if isinstance(node, ast.Tuple):
            return all(self._is_type(e, scope) for e in node.elts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._is_type(node.left, scope) and self._is_type(node.right, scope)
        if isinstance(node, ast.Name) and scope.find(node.id) is None and node.id in names.TYPES:
            return True
        return scope.module.dotted(node) in names.TYPES | names.NUMBERS or self.own_class(node, scope) is not None


def _calls_a_value(node: ast.Call, name: str) -> bool:
    """Whether a built-in calls what it gets: `map(f, items)`, `sorted(items, key=f)`. What is followed is left out
    before (`_without_handed_on`), so that `map(items)` stands for `map(int, items)`."""
    if name in _KEYED:
        return any(k.arg not in ("reverse", "default") for k in node.keywords)
    several = len(node.args) > 1 or any(isinstance(a, ast.Starred) for a in node.args)
    first = node.args[0] if node.args else None
    nothing = name == "filter" and isinstance(first, ast.Constant) and first.value is None
    return name in _PICKING | _CALLING and several and not nothing


def _numbers_given(
    node: ast.Call, name: str, positional: list[ValueKind], keywords: dict[str | None, ValueKind]
) -> list[ValueKind]:
    """The kinds of those arguments of one of `_TAKING_NUMBERS` that Python makes numbers of: `digits`, `start`, and
    `strict` of `zip`."""
    behind = [
        kind
        for number, (argument, kind) in enumerate(zip(node.args, positional, strict=True))
        if name != "zip" and (number or isinstance(argument, ast.Starred))
    ]
    return behind + [kind for key, kind in keywords.items() if key != "iterable"]


def _without_stream(node: ast.Call, scope: Scope) -> ast.Call:
    """`print(…, file=sys.stderr)` as `print(…)`: all of the process's streams are one log."""
    streams = [k for k in node.keywords if k.arg == "file" and scope.module.dotted(k.value) in names.STREAMS]
    if not streams:
        return node
    return ast.copy_location(ast.Call(node.func, node.args, [k for k in node.keywords if k not in streams]), node)

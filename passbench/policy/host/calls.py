"""The static policy on calls in host code: which kind of call one is, instances of classes, and decorators."""

import ast
import inspect
import itertools
from collections.abc import Iterator, Sequence

import triton

from passbench.policy import allowlists as names
from passbench.policy.flow.computing import makes_numbers_of_numbers
from passbench.policy.flow.groups import Instance
from passbench.policy.forms.decorators import fault_of_call
from passbench.policy.host.bindings import DIRECTLY, FIELDS, METHODS
from passbench.policy.host.given import Keywords
from passbench.policy.host.imported_calls import ImportedCalls
from passbench.policy.kernels.heuristics import is_plain_number, returns_plain_numbers
from passbench.policy.nodes import bound_names, names_by_place, walk
from passbench.policy.scopes import (
    ITEM_OF_RETURN,
    RETURN,
    Scope,
    ValueKind,
    defaults,
    joined,
    length_of_returns,
    owned_values,
    parameters,
)


class Calls(ImportedCalls):
    """Follows kinds through calls, and refuses those that read values, write to what is not theirs, or know more than
    their arguments."""

    def call(self, node: ast.Call, scope: Scope) -> ValueKind:
        function = self.host_function(node.func, scope)
        if function is not None:
            return self._call_functions([function], node, scope)
        own = self.own_class(node.func, scope)
        if own is not None:
            return self._construct(node, own, scope)
        if made := self.made_by(node.func, scope):
            return joined(self._construct(node, one, scope) for one in made)
        if isinstance(node.func, ast.Attribute) and scope.module.is_of_sibling(node.func):
            return self._call_method(node, node.func, scope)
        dotted = scope.module.dotted(node.func)
        if dotted is not None and dotted.rpartition(".")[0] not in names.VERSIONS:
            return self._call_dotted(node, dotted, scope)
        if isinstance(node.func, ast.Name):
            return self._call_name(node, node.func.id, scope)
        if isinstance(node.func, ast.Attribute):
            return self._call_method(node, node.func, scope)
        if isinstance(node.func, ast.Subscript) and (table := self._table(node.func.value, scope)):
            return self._call_out_of(table, node, node.func, scope)
        if isinstance(node.func, ast.Subscript):  # kernel[grid](...), or a function out of a table
            self.kind(node.func.value, scope)
            self.mark_called(node.func.slice, scope)
            if not self._fixes_grid(node.func.slice, scope) and not self._is_method_for_grid(node.func.slice, scope):
                grid = self.kind(node.func.slice, scope, hook=True)
                self.note_used("__getitem__", grid)
                if not isinstance(node.func.slice, ast.Tuple) and not self._is_lambda(node.func.slice, scope):
                    self.mark_grids(node.func, grid)
                if self._is_made(node.func.slice, grid, scope) or self._returns_made(node.func.slice, scope):
                    self.read("a grid is made of numbers", scope, node)
            kernel, given = self._kernel(node.func.value, scope), self._arguments(node, scope)
            if kernel is None:
                return self.call_unnamed(node, *given, scope)
            self._launch(node, kernel, *given, scope)
            return ValueKind.TENSOR
        self.kind(node.func, scope)
        given = self._arguments(node, scope)
        if isinstance(node.func, ast.Call | ast.IfExp):  # what a function, or a table's `get`, has returned
            return self.call_unnamed(node, *given, scope)
        self.find("dynamic_call", scope.module, node, "call functions of the pass by name")
        return ValueKind.TENSOR

    def call_unnamed(self, node: ast.Call, positional: list[ValueKind], keywords: Keywords, scope: Scope) -> ValueKind:
        """A call of what a variable, a field or an item holds: each function of the pass that it can be gets the
        arguments. Where that is not known it may be any kernel, function or operator."""
        if node not in self.flow.called:  # the walk has not met it: nothing is known then
            self.kinds.changed |= self.flow.give_up()
        held = self.flow.held(self.flow.called.get(node))
        self.steps.take(len(held or ()))
        if held and self.kernel_homes.keys() >= held:
            for kernel in held:
                self._launch(node, kernel, positional, keywords, scope, alone=False)
            return ValueKind.TENSOR
        if not held or not self.kernel_homes.keys().isdisjoint(held):
            self._launch(node, None, positional, keywords, scope)
            return ValueKind.TENSOR
        results, lazy = [], self.is_iterator(node, scope)
        functions = [one for one in held if isinstance(one, ast.FunctionDef | ast.Lambda)]
        if functions:
            results.append(self._call_functions(functions, node, scope))
        positional, keywords = self._with_addresses(node, positional, keywords, scope)
        for one in held:
            if isinstance(one, ast.ClassDef):
                results.append(self._construct(node, one, scope))
            elif isinstance(one, Instance):
                for method in self.methods_of(one.own, "__call__"):
                    if method in self.collected.first:  # what it collects is kept by the name
                        results.append(self._give(node, "__call__", positional, keywords, scope))
                    else:
                        of_all, single = [ValueKind.SCALAR, *positional], self.single_arguments(node, scope, 1)
                        results.append(self._pass_starred(node, method, of_all, keywords, single))
                        given = joined((*positional, *keywords.values()))
                        self.kinds.join((METHODS, "__call__"), DIRECTLY, given)
                    self._note_sequences(method, node, scope, 1)
        return max(joined(results), ValueKind.ADDRESS) if lazy else joined(results)

    def _call_functions(
        self, functions: Sequence[ast.FunctionDef | ast.Lambda], node: ast.Call, scope: Scope
    ) -> ValueKind:
        """A call of one of these functions of the pass: each may get the arguments."""
        positional, keywords = self._given(node, scope)
        results = []
        before_star = itertools.takewhile(lambda pair: not isinstance(pair[1], ast.Starred), enumerate(node.args))
        dicts = [number for number, value in before_star if self.is_launch_dict(value, scope)]
        every, single = positional, self.single_arguments(node, scope)
        for function in functions:
            taken = {number for number in dicts if self._takes_launch_dict(function, number)}
            positional = [ValueKind.SCALAR if number in taken else kind for number, kind in enumerate(every)]
            self.check_callable(function, node, scope)
            if function in self.hooks and any(k.holds_tensors for k in (*positional, *keywords.values())):
                name = getattr(function, "name", "the lambda")
                message = f"{name} is a grid or hook of Triton, which alone calls it"
                self.find("dynamic_call", scope.module, node, message)
            result = self._pass_starred(node, function, positional, keywords, single)
            plain = {*every, *keywords.values()} <= {ValueKind.SCALAR} and self._makes_numbers(function)
            results.append(ValueKind.SCALAR if plain else result)
            self._note_sequences(function, node, scope)
        return joined(results)

    def _makes_numbers(self, function: ast.FunctionDef | ast.Lambda) -> bool:
        """Whether a function returns no tensor where it is given none, whatever other calls give it."""
        if function not in self.homes:
            return False
        self.steps.take(len(walk(function)))
        return makes_numbers_of_numbers(function, self.scopes[self.homes[function].name])

    def _takes_launch_dict(self, function: ast.FunctionDef | ast.Lambda, number: int) -> bool:
        """Whether a function may get the dict of a launch as its argument of this number, from a grid: the parameter
        is nothing else. It counts as one from then on."""
        order = names_by_place(function)
        place = (function, order[number] if number < len(order) else "")
        if place not in self.launch_dicts:
            self.steps.take(len(walk(function)))
            others = {parameter.arg for parameter, _ in defaults(function)}
            self.launch_dicts[place] = bound_names(function)[place[1]] == 1 and place[1] not in others
            self.kinds.changed = True
        if self.launch_dicts[place]:
            self.kinds.join(*place, ValueKind.HOLDER)
        return self.launch_dicts[place]

    def _note_sequences(
        self, function: ast.FunctionDef | ast.Lambda, node: ast.Call, scope: Scope, first: int = 0
    ) -> None:
        """Note which parameters of a function are given lists, tuples or texts, from the `first` on."""
        order = names_by_place(function)[first:]
        given = {k.arg: k.value for k in node.keywords if k.arg is not None}
        for number, value in enumerate(node.args[: len(order)]):
            if isinstance(value, ast.Starred):
                given |= {name: _item(value.value, place) for place, name in enumerate(order[number:])}
                break
            given[order[number]] = value
        for spread in (k.value for k in node.keywords if k.arg is None):
            rest = [parameter.arg for parameter in parameters(function)]
            given = {name: _item(spread, name) for name in rest} | given
        for name, value in given.items():
            if self.is_sequence(value, scope):
                self.note_sequence(function, name)

    def _given(self, node: ast.Call, scope: Scope) -> tuple[list[ValueKind], Keywords]:
        """The arguments of a call of the pass's own code. The text of an iterator has an address."""
        return self._with_addresses(node, *self._arguments(node, scope), scope)

    def _with_addresses(
        self, node: ast.Call, positional: list[ValueKind], keywords: Keywords, scope: Scope
    ) -> tuple[list[ValueKind], Keywords]:
        if any(self.is_iterator(a, scope) for a in (*node.args, *(k.value for k in node.keywords))):
            positional = [max(kind, ValueKind.ADDRESS) for kind in positional]
            keywords = {name: max(kind, ValueKind.ADDRESS) for name, kind in keywords.items()}
        return positional, keywords

    def _table(self, node: ast.expr, scope: Scope) -> tuple[ast.Name, ...]:
        """Where the functions of a table are named; empty where an expression names none."""
        module = scope.module.name
        if not isinstance(node, ast.Name) or scope.find(node.id) is not self.scopes[module]:
            return ()
        return self.tables.get((module, node.id), ())

    def _call_out_of(self, table: Sequence[ast.Name], node: ast.Call, item: ast.Subscript, scope: Scope) -> ValueKind:
        """`TABLE[key](arguments)`: any function of the table may get them."""
        self.index(item, scope)
        self.seen.add(item)
        self.steps.take(len(table))
        home = self.scopes[scope.module.name]
        functions = [function for name in table if (function := self.host_function(name, home)) is not None]
        found = self._call_functions(functions, node, scope)
        lazy = any((function, RETURN) in self.iterators for function in functions)
        return max(found, ValueKind.ADDRESS) if lazy else found

    def _is_lambda(self, node: ast.expr, scope: Scope) -> bool:
        """Whether a variable is a lambda, or one of several, and nothing else."""
        owner = scope.find(node.id) if isinstance(node, ast.Name) else None
        if owner is None or node.id not in owner.lambdas:
            return False
        if (owner.node, node.id) not in self.lambdas_alone:
            self.steps.take(len(walk(owner.node)))
            values = owned_values(owner.node, node.id)
            alone = bool(values) and all(isinstance(value, ast.Lambda) for value in values)
            self.lambdas_alone[owner.node, node.id] = alone
        return self.lambdas_alone[owner.node, node.id]

    def _fixes_grid(self, node: ast.expr, scope: Scope) -> bool:
        """Whether a grid is `functools.partial(f, numbers…)` of a function of the pass that is a hook in no other way:
        Triton calls it with its dict behind them."""
        if not isinstance(node, ast.Call) or scope.module.dotted(node.func) != "functools.partial" or node.keywords:
            return False
        function = self.host_function(node.args[0], scope) if node.args else None
        given = node.args[1:]
        if function is None or any(isinstance(a, ast.Starred) for a in given):
            return False
        kinds = [self.kind(a, scope) for a in given]
        otherwise = function in self.hooks and self.fixed.get(function) != len(given)
        if otherwise or not given or any(kind.holds_tensors for kind in kinds):
            return False
        self.seen.add(node)
        self.check_callable(function, node, scope)
        self.pass_arguments(function, kinds, {})
        if function not in self.hooks:
            self.hooks.add(function)
            self.fixed[function] = len(given)
            self.kinds.changed = True
        return True

    def _returns_made(self, node: ast.expr, scope: Scope) -> bool:
        """Whether a grid is a call of a function that returns a tuple with tensors which the pass has made."""
        function = self.host_function(node.func, scope) if isinstance(node, ast.Call) else None
        length = length_of_returns(function) if function is not None else None
        return any(self.kinds.get(function, ITEM_OF_RETURN.format(n)).is_made for n in range(length or 0))

    def _is_method_for_grid(self, node: ast.expr, scope: Scope) -> bool:
        """Whether a grid is a method of the pass, `PLAN.grid`, which Triton then calls."""
        if not (found := self.methods_read(node, scope)):
            return False
        self.seen.add(node)
        self.base_kind(node, scope, called=True)
        for method in found:
            self.mark_hook(method)
        return True

    def _construct(self, node: ast.Call, own: ast.ClassDef, scope: Scope) -> ValueKind:
        """An instance of a class of the pass: its fields are of the kinds that it is made with, and of what they are
        set to later. It is compared by these, and they are its text."""
        positional, keywords = self._given(node, scope)
        facts = self.facts(own)
        if max((*positional, *keywords.values()), default=ValueKind.SCALAR).holds_tensors and facts.is_error:
            self.read("what an error is made with can be read off its text", scope, node)
        self.steps.take(1 + len(facts.fields))
        made = [self.set_later(own)] if facts.compares else []
        if facts.initial is not None:
            of_all, single = [ValueKind.SCALAR, *positional], self.single_arguments(node, scope, 1)
            self._pass_starred(node, facts.initial, of_all, keywords, single)
            self._note_sequences(facts.initial, node, scope, 1)
            held = self.holder([self.kinds.get(FIELDS, name) for name in facts.fields if facts.compares])
            made.append(max(held, ValueKind.SCALAR if facts.has_text else ValueKind.ADDRESS))
        if facts.by_fields:
            made.append(self.fill_fields(node, own, positional, keywords, scope))
        return joined(made)

    def decorator_arguments(self, node: ast.Call, dotted: str, scope: Scope) -> None:
        """Arguments of a decorator: `triton.jit`, `autotune` and such; values of `heuristics` must be plain numbers."""
        if fault := fault_of_call(node, dotted, scope.module.literals):
            self.find("decorator", scope.module, node, fault)
        if dotted == names.WRAPS:  # it copies names and texts of a function
            return
        self.decorating = True
        positional, keywords = self._arguments(node, scope, hook=dotted in names.KERNEL_DECORATORS)
        if any(kind >= ValueKind.ADDRESS for kind in (*positional, *keywords.values())):
            self.let_triton_call(hooks=True)
        self.decorating = False
        for name, value in _named_arguments(node, dotted):
            if name is None:
                self.find("hook", scope.module, node, f"name each argument of {dotted}: a * may hand in functions")
            if isinstance(value, ast.Constant) and value.value is None:
                continue
            if name == "prune_configs_by" and not _prunes_early(value):
                message = "rank configurations in early_config_prune; no other function of prune_configs_by is allowed"
                self.find("prune_configs_by", scope.module, node, message)
            if name == "repr":
                message = "a kernel is known by the name of its function where it runs; leave repr out"
                self.find("hook", scope.module, node, message)
            if name == "do_bench":
                self.find("hook", scope.module, node, "Triton times configurations itself; leave do_bench out")
        if dotted != "triton.heuristics":
            return
        members = self.fields | self.methods.keys() | self.shared_names.keys()
        for argument in (*node.args, *(k.value for k in node.keywords)):
            for value in argument.values if isinstance(argument, ast.Dict) else [argument]:
                function = self.host_function(value, scope)
                home = self.homes.get(function, scope.module)
                plain = isinstance(value, ast.Lambda) and is_plain_number(value.body, scope.module, members)
                if not plain and not (function is not None and returns_plain_numbers(function, home, members)):
                    message = "a heuristic is a function whose value is a comparison, or a min, max, int or bool"
                    self.find("heuristic", scope.module, value, message)


def _item(container: ast.expr, place: int | str) -> ast.Subscript:
    return ast.copy_location(ast.Subscript(container, ast.Constant(place), ast.Load()), container)


_ORDER = tuple(inspect.signature(triton.autotune).parameters)


def _named_arguments(node: ast.Call, dotted: str) -> Iterator[tuple[str | None, ast.expr]]:
    """The arguments of a kernel's decorator with their names; None for those behind a `*` or `**`."""
    for number, argument in enumerate(node.args):
        of_autotune = dotted == "triton.autotune" and number < len(_ORDER)
        yield None if isinstance(argument, ast.Starred) else _ORDER[number] if of_autotune else "values", argument
    yield from ((keyword.arg, keyword.value) for keyword in node.keywords)


def _prunes_early(node: ast.expr) -> bool:
    """Whether `prune_configs_by` is written out and prunes without a performance model, which gets every argument."""
    if not isinstance(node, ast.Dict):
        return False
    return all(isinstance(k, ast.Constant) and k.value in ("early_config_prune", "top_k") for k in node.keys)

"""The static policy on what functions, kernels and methods of a pass are given."""

import ast
from collections.abc import Callable, Container, Iterator, Sequence

from passbench.policy import item_parts, operators
from passbench.policy.host.bindings import LAUNCHED, METHODS, VALUES, WRITE_ADVICE
from passbench.policy.host.expressions import Expressions
from passbench.policy.host.given import Keywords
from passbench.policy.kernels.addresses import is_constant
from passbench.policy.kernels.launch_arguments import fault_of_launch
from passbench.policy.modules import Module
from passbench.policy.nodes import bound_names, names_by_place, quoted, walk
from passbench.policy.scopes import RETURN, Scope, ValueKind, defaults, joined, parameters


class Arguments(Expressions):
    """Hands the kinds of arguments to what is called."""

    def _arguments(self, node: ast.Call, scope: Scope, hook: bool = False) -> tuple[list[ValueKind], Keywords]:
        positional = [self.kind(a, scope, hook=hook) for a in node.args]
        keywords: Keywords = {}
        for keyword in node.keywords:  # ** may be there several times
            kind = self.kind(keyword.value, scope, hook=hook)
            keywords[keyword.arg] = joined((kind, keywords.get(keyword.arg, kind)))
            if not (isinstance(keyword.value, ast.Constant) and not keyword.value.value):
                self.check_option(keyword.arg, node, scope)
        return positional, keywords

    def pass_arguments(
        self,
        function: ast.FunctionDef | ast.Lambda,
        positional: list[ValueKind],
        keywords: Keywords,
        single: Container[int | str] = (),
    ) -> ValueKind:
        """Hand arguments of these kinds to a function or kernel of the pass; returns the kind of its result. `single`:
        the numbers and names of those that surely are (see `Kinds`)."""
        self.steps.take(len(parameters(function)))
        if function not in self.given_tensors and any(k.holds_tensors for k in (*positional, *keywords.values())):
            self.given_tensors.add(function)
            self.kinds.changed = True
        order = names_by_place(function)
        for number, (name, kind) in enumerate(zip(order, positional, strict=False)):
            self.kinds.join(function, name, kind, single=number in single)
        for name, kind in keywords.items():
            if name is not None:
                self.kinds.join(function, name, kind, single=name in single)
        known = {a.arg for a in parameters(function)} - {a.arg for a in function.args.posonlyargs}
        self._collect(function, function.args.vararg, positional[len(order) :])
        if function in self.collected.first:
            self._note_collected(function, positional)
        self._collect(function, function.args.kwarg, [k for name, k in keywords.items() if name not in known])
        if function.args.kwarg is not None:
            self.names_given.setdefault(function, set()).update(keywords.keys() - known)
        spread = keywords.get(None, ValueKind.SCALAR)
        for name in [p.arg for p in parameters(function)] if None in keywords else ():
            if name not in keywords and (spread.holds_tensors or name not in order[: len(positional)]):
                self.kinds.join(function, name, spread.item())  # it may go anywhere but where a keyword goes
        return self.kinds.get(function, RETURN)

    def _note_collected(self, function: ast.FunctionDef, positional: list[ValueKind] | None) -> None:
        """Note the arguments of a function with a parameter `*rest` by their numbers; None where they are not known. A
        method that is called through its class is no such one."""
        method = function in self.classes_of_methods
        known, key = positional is not None and not method, function.name if method else function
        self.kinds.changed |= self.collected.note(key, len(positional) if known else None)
        for number, kind in enumerate(positional if known else ()):
            self.kinds.join(function, number, kind)

    def _collect(self, function: ast.AST, into: ast.arg | None, kinds: Sequence[ValueKind]) -> None:
        """Arguments of these kinds are collected in a parameter `*rest` or `**rest`."""
        if into is not None:
            self.kinds.join(function, into.arg, self.holder(list(kinds)))

    def _pass_starred(
        self,
        node: ast.Call,
        function: ast.FunctionDef,
        positional: list[ValueKind],
        keywords: Keywords,
        single: Container[int | str] = (),
    ) -> ValueKind:
        positional, stars = self._expanded(node, positional)
        if stars:
            if function in self.collected.first:
                self._note_collected(function, None)
            self._collect(function, function.args.vararg, positional[stars[0] :])
            positional = _spread(function, positional, set(keywords), stars, function in self.kernel_homes)
        return self.pass_arguments(function, positional, keywords, single)

    def _expanded(self, node: ast.Call, positional: list[ValueKind]) -> tuple[list[ValueKind], list[int]]:
        """The arguments of a call with the items of each `*rest` that are known in its place, and the numbers of the
        starred ones that are left."""
        extra = len(positional) - len(node.args)  # an instance
        found, stars = positional[:extra], []
        for argument, kind in self._one_by_one(node.args, positional[extra:]):
            parts = self.rest_of(argument.value) if isinstance(argument, ast.Starred) else None
            if isinstance(argument, ast.Starred) and parts is None:
                stars.append(len(found))
            found += [kind] if parts is None else parts
        return found, stars

    def _one_by_one(self, arguments: list[ast.expr], kinds: list[ValueKind]) -> Iterator[tuple[ast.expr, ValueKind]]:
        """Arguments and their kinds, with the items of written collections in their place."""
        for argument, kind in zip(arguments, kinds, strict=True):
            items = self._written_items(argument)
            if items is None:
                yield argument, kind
            for item in items or ():
                yield item, self.handed_kind(item, self.scopes_of_stars[argument])

    def _written_items(self, node: ast.expr) -> list[ast.expr] | None:
        """The items of a tuple or list, as in `rest = (x, out, n)`, where `*rest` names a variable of the function
        around that is nothing else; None for other expressions."""
        scope = self.scopes_of_stars.get(node)
        if scope is None or not isinstance(node.value, ast.Name) or not isinstance(scope.node, ast.FunctionDef):
            return None
        node = node.value
        if scope.find(node.id) is not scope:
            return None
        if scope.node not in self._collections:
            self.steps.take(len(walk(scope.node)))
            self._collections[scope.node] = item_parts.written_collections(scope.node)
        return self._collections[scope.node].get(node.id)

    def rest_of(self, node: ast.expr) -> list[ValueKind] | None:
        """The kinds of what `args` or `args[1:]` holds, item by item, in a function that collects `*args`, or of what a
        comprehension makes of each; None where calls do not tell, or have different numbers of arguments."""
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            plain = len(node.generators) == 1 and not node.generators[0].ifs
            items = self.rest_of(node.generators[0].iter) if plain and node in self._opened else None
            if items is None:
                return None
            scope = self._opened[node]
            made = self.kind(node.elt, scope)
            return [item if self._is_kept(node, item, scope) else made for item in items]
        part = item_parts.constant_slice(node)
        name = node.value if part is not None else node
        function = self.collected.function_of(name)
        lengths = self.collected.lengths(function, self.escaped | self.hooks) if function is not None else None
        if lengths is None or len(lengths) > 1:
            return None
        first, place = self.collected.first[function], self._place_of(function)
        items = [self.kinds.get(place, number) for number in range(first, max(lengths, default=first))]
        return items if part is None else items[part]

    def _is_kept(self, node: ast.ListComp | ast.GeneratorExp, item: ValueKind, scope: Scope) -> bool:
        """Whether a comprehension hands on an item of this kind as it is: `[a.half() if isinstance(a, torch.Tensor)
        else a for a in args]` does so with what is no tensor, and so does `[f(a) for a in args]` with a function `f`
        that returns this."""
        match node.generators[0].target, node.elt:
            case ast.Name(name), ast.Call(args=[ast.Name(given)], keywords=[]) if given == name:
                function = self.host_function(node.elt.func, scope)
                home = self.homes.get(function, scope.module)
                return item is ValueKind.SCALAR and function is not None and _hands_on_numbers(function, home)
            case ast.Name(name), ast.IfExp():
                return item is ValueKind.SCALAR and _keeps_numbers(node.elt, name, scope.module)
            case ast.Name(name), ast.Name(kept):
                return kept == name
        return False

    def rest_item(self, node: ast.Subscript) -> ValueKind | None:
        """The kind of `args[1]` in such a function."""
        function, index = self.collected.function_of(node.value), item_parts.constant_index(node.slice)
        lengths = self.collected.lengths(function, self.escaped | self.hooks) if function is not None else None
        if lengths is None or index is None:
            return None
        first, place = self.collected.first[function], self._place_of(function)
        places = {first + index} if index >= 0 else {length + index for length in lengths}
        return joined(self.kinds.get(place, n) for n in places if n >= first)

    def _place_of(self, function: ast.FunctionDef) -> object:
        return (METHODS, function.name) if function in self.classes_of_methods else function

    def check_cached(self, function: ast.FunctionDef, module: Module) -> None:
        """Report a cached function that gets tensors: its cache would remember earlier calls."""
        given = max((self.kinds.get(function, p.arg) for p in parameters(function)), default=ValueKind.SCALAR)
        if given.holds_tensors:
            message = f"{function.name} is cached and gets a tensor; give it shapes, dtypes and numbers"
            self.find("cached_tensor", module, function, message)

    def _kernel(self, node: ast.expr, scope: Scope) -> ast.FunctionDef | None:
        """The kernel that an expression names, here or in a sibling, or as what a class holds; None if it names none
        for sure."""
        dotted = scope.module.dotted(node)
        place = scope.module.sibling_function(dotted) if dotted else None
        if place is not None:
            return self.modules[place[0]].kernels.get(place[1]) if place[0] in self.modules else None
        if isinstance(node, ast.Name) and scope.find(node.id) is self.scopes[scope.module.name]:
            return scope.module.kernels.get(node.id)
        if isinstance(node, ast.Attribute) and node.attr in self.kernels_of_classes:
            classes = (self.own_class(node.value, scope), self.class_of(node.value, scope))
            return self.kernels_of_classes[node.attr] if any(classes) or self.made_by(node.value, scope) else None
        return None

    def _launch(
        self,
        node: ast.Call,
        kernel: ast.FunctionDef | None,
        positional: list[ValueKind],
        keywords: Keywords,
        scope: Scope,
        *,
        alone: bool = True,
    ) -> None:
        """Note what a kernel gets, since Triton hands it to hooks. `kernel` None: it may be any kernel of the pass, or
        an operator that is a value somewhere. `alone`: it is no other than this one."""
        if kernel is None:
            self.check_as_operator(node, positional, keywords, scope)
            one_by_one, stars = self._expanded(node, positional)
            self.launch_any(one_by_one, keywords, bool(stars))
            self.give_values(node, positional, keywords, scope)
            self._give(node, "__call__", positional, keywords, scope)
            self._give(node, "__init__", positional, keywords, scope)
            return
        self._pass_starred(node, kernel, positional, keywords)
        if self.report is not None and alone and (fault := fault_of_launch(kernel, node)) is not None:
            self.find("launch", scope.module, node, fault)
        for parameter in parameters(kernel):
            kind = self.kinds.get(kernel, parameter.arg)
            self.kinds.join(LAUNCHED, parameter.arg, kind)
            if kind.is_made and is_constant(parameter):
                self.read(f"{kernel.name} is compiled for each value of {parameter.arg}", scope, node)

    def check_as_operator(self, node: ast.Call, positional: list[ValueKind], keywords: Keywords, scope: Scope) -> None:
        """Report a call of a value that may be an operator of torch, and would write with these arguments."""
        written = keywords.get("out", ValueKind.OWN)
        if self.operators_handed_on and written not in (ValueKind.OWN, ValueKind.SCALAR):
            message = f"{quoted(node.func)} may be an operator that writes into its out=; {WRITE_ADVICE}"
            self.find("in_place", scope.module, node, message)
        self._check_choices(node, positional, keywords, scope)

    def _check_choices(self, node: ast.Call, positional: list[ValueKind], keywords: Keywords, scope: Scope) -> None:
        """Report a call of a value that may be an operator of torch, and would write with these arguments: by a number
        or a constant, since no tensor is a switch."""
        named = {k.arg: k.value for k in node.keywords if k.arg is not None}
        kinds = dict(zip(map(id, node.args), positional, strict=False))
        kinds |= {id(value): keywords[name] for name, value in named.items()}
        for written in (self.written_dict(k.value, scope) for k in node.keywords if k.arg is None):
            named |= {k.value: v for k, v in zip(*_items(written), strict=True) if isinstance(k, ast.Constant)}
        off = ast.Constant(False)
        for stored in self.may_be(node.func, scope):
            self.steps.take()
            found = operators.library_call(stored, node.args, named).written
            if not found:
                continue
            plain = [a if a in found or kinds.get(id(a)) is ValueKind.SCALAR else off for a in node.args]
            foreign = [w for w in operators.library_call(stored, plain, named).written if self._is_foreign(w, kinds)]
            if foreign:
                message = f"{quoted(node.func)} may be {stored}, which writes into {quoted(foreign[0])} here"
                self.find("in_place", scope.module, node, f"{message}; call it by its name")

    def may_be(self, called: ast.expr, scope: Scope) -> list[str]:
        """The operators that may write and that an expression may stand for: the one of `TABLE["key"]` where the table
        is written out and only read by keys, else any."""
        every = sorted(self.writing_by_choice)
        match called if every else None:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key)):
                owner = scope.find(name)
            case _:
                return every
        table = self._only_value(owner.node if owner is not None else scope.module.tree, name, _read_by_key)
        if not isinstance(table, ast.Dict) or not all(isinstance(k, ast.Constant) for k in table.keys):
            return every
        found = [v for k, v in zip(table.keys, table.values, strict=True) if k.value == key]
        stored = {operators.stored_name(scope.module.dotted(value) or "") for value in found}
        return [one for one in every if one in stored]

    @staticmethod
    def _is_foreign(written: ast.expr, kinds: dict[int, ValueKind]) -> bool:
        """Whether what an operator would write to may be another's tensor."""
        return not isinstance(written, ast.Constant) and kinds.get(id(written)) is not ValueKind.OWN

    def written_dict(self, node: ast.expr, scope: Scope) -> ast.Dict | None:
        """The dict that an expression is, with all of its keys in the text."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.args:
            plain = node.func.id == "dict" and scope.find("dict") is None
            keys = [ast.Constant(keyword.arg) for keyword in node.keywords]
            return ast.Dict(keys, [keyword.value for keyword in node.keywords]) if plain else None
        if isinstance(node, ast.Dict) or not isinstance(node, ast.Name):
            return node if isinstance(node, ast.Dict) else None
        owner = scope.find(node.id)
        if owner is None or owner is not scope or not isinstance(owner.node, ast.FunctionDef):
            return None
        made = self._only_value(owner.node, node.id, _handed_in)
        return None if made is None or isinstance(made, ast.Name) else self.written_dict(made, scope)

    def _only_value(
        self, place: ast.Module | ast.FunctionDef, name: str, used: Callable[[ast.AST], ast.expr | None]
    ) -> ast.expr | None:
        """What is assigned to a variable, if that is all that binds it, and nothing reads it but where it is what
        `used` finds in a node."""
        everything = walk(place)
        self.steps.take(len(everything))
        read = sum(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in everything)
        uses = sum(isinstance(value, ast.Name) and value.id == name for value in map(used, everything))
        made = [n.value for n in everything if isinstance(n, ast.Assign) and _is_alone(n.targets, name)]
        return made[0] if read == uses and bound_names(place)[name] == len(made) == 1 else None

    def give_values(self, node: ast.Call, positional: list[ValueKind], keywords: Keywords, scope: Scope) -> None:
        """Arguments for all functions that are values somewhere. The text of an iterator has an address; a list and a
        text are repeated by a number."""
        values = [*enumerate(node.args), *((k.arg or "**", k.value) for k in node.keywords)]
        if any(self.is_iterator(value, scope) for _, value in values):
            positional = [max(kind, ValueKind.ADDRESS) for kind in positional]
            keywords = {name: max(kind, ValueKind.ADDRESS) for name, kind in keywords.items()}
        self._give(node, VALUES, positional, keywords, scope)

    def _give(
        self, node: ast.Call, name: str, positional: list[ValueKind], keywords: Keywords, scope: Scope
    ) -> ValueKind:
        """Arguments for all methods of this name; a starred one may be any."""
        values = [*enumerate(node.args), *((k.arg or "**", k.value) for k in node.keywords)]
        starred = any(isinstance(value, ast.Starred) for _, value in values)
        for place, value in values:
            if self.is_sequence(value.value if isinstance(value, ast.Starred) else value, scope):
                self.note_sequence((METHODS, name), "**" if starred else place)
        positional, stars = self._expanded(node, positional)
        if stars:
            worst = max([*positional, keywords.get(None, ValueKind.SCALAR)])
            keywords = {**keywords, None: worst}
        return self.give_methods(name, positional, keywords, self.single_arguments(node, scope))

    def _fix_constants(self, kernel: ast.FunctionDef, constants: Keywords) -> None:
        """A `Launch` is called with what is not among its constants, tensors all of it, by whoever calls it."""
        self.steps.take(len(parameters(kernel)))
        for parameter in parameters(kernel):
            if parameter.arg not in constants and not is_constant(parameter):
                self.kinds.join(kernel, parameter.arg, ValueKind.TENSOR)
                self.kinds.join(LAUNCHED, parameter.arg, ValueKind.TENSOR)


def _spread(
    function: ast.FunctionDef, positional: list[ValueKind], keywords: set[str | None], stars: list[int], kernel: bool
) -> list[ValueKind]:
    """Kinds by parameter where an argument is `*values`. A single one takes what parameters are left, of a kernel those
    of `tl.constexpr` aside; from there on nothing is surely a number. Where it may leave out parameters that have a
    default, what comes behind it may go to any."""
    first = stars[0]
    order = [a for a in (*function.args.posonlyargs, *function.args.args) if a.arg not in keywords]
    taken = [a for a in order if not (kernel and is_constant(a))]
    left = len(taken) - (len(positional) - 1)
    optional = {parameter for parameter, _ in defaults(function)}
    shifts = len(positional) > first + 1 and not optional.isdisjoint(taken[first:])
    if len(stars) > 1 or left < 0 or shifts:
        worst = max(positional[first:])
        return positional[:first] + [worst.item() if worst.holds_tensors else ValueKind.EITHER] * len(order)
    spread = [*positional[:first], *[positional[first].item()] * left, *positional[first + 1 :]]
    return [kind if n < first else max(kind, ValueKind.EITHER) for n, kind in enumerate(spread)]


def _hands_on_numbers(function: ast.FunctionDef, module: Module) -> bool:
    """Whether all that a function of one parameter does is to return it, if it is no tensor."""
    match function.args, function.body[-1]:
        case ast.arguments(posonlyargs=[], args=[parameter], vararg=None, kwonlyargs=[], kwarg=None), ast.Return(value):
            alone = all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in function.body[:-1])
            plain = alone and not function.decorator_list
            return plain and value is not None and _keeps_numbers(value, parameter.arg, module)
    return False


def _keeps_numbers(made: ast.expr, name: str, module: Module) -> bool:
    """Whether an expression is `… if isinstance(NAME, torch.Tensor) else NAME`, or asks by `torch.is_tensor`."""
    match made:
        case ast.IfExp(
            test=ast.Call(func=ast.Name("isinstance"), args=[ast.Name(asked), tested], keywords=[]),
            orelse=ast.Name(kept),
        ):
            asks = "isinstance" not in module.names_bound and module.dotted(tested) == "torch.Tensor"
        case ast.IfExp(test=ast.Call(func, [ast.Name(asked)], []), orelse=ast.Name(kept)):
            asks = module.dotted(func) == "torch.is_tensor"
        case _:
            return False
    return asks and asked == kept == name


def _read_by_key(node: ast.AST) -> ast.expr | None:
    return node.value if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) else None


def _handed_in(node: ast.AST) -> ast.expr | None:
    return node.value if isinstance(node, ast.keyword) and node.arg is None else None


def _is_alone(targets: list[ast.expr], name: str) -> bool:
    return len(targets) == 1 and isinstance(targets[0], ast.Name) and targets[0].id == name


def _items(written: ast.Dict | None) -> tuple[list[ast.expr | None], list[ast.expr]]:
    return (written.keys, written.values) if written is not None else ([], [])

"""The static policy on what is given to functions, methods and kernels whose calls are not all looked at one by one."""

import ast
import itertools

from passbench.policy import item_parts
from passbench.policy.host.bindings import FIELDS, LAUNCHED, METHODS, VALUES, Bindings
from passbench.policy.scopes import RETURN, Scope, ValueKind, defaults, joined, parameters


class Given(Bindings):
    """Keeps what hooks of Triton, kernels, and methods of a name are given, and what `*args` of a function holds."""

    classes_of_methods: dict[ast.FunctionDef, ast.ClassDef]

    def enter(self, node: ast.FunctionDef | ast.Lambda, scope: Scope, kind: ValueKind) -> None:
        """What parameters can be at least: of this kind, their defaults, and what Triton hands in if it is a hook."""
        for parameter, default in defaults(node):
            self.kinds.join(node, parameter.arg, self.kind(default, scope))
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
            if starred:  # of a function of the module the calls tell what it collects
                self.kinds.join(node, parameter.arg, self.holder([kind]) if node in self.homes else ValueKind.HOLDER)
            else:
                self.kinds.join(node, parameter.arg, kind)

    def mark_hook(self, function: ast.FunctionDef | ast.Lambda) -> None:
        """Note that Triton calls a function, with what it hands in from its first parameter on."""
        known = function in self.hooks and not self.fixed.get(function)
        if known and (function in self.of_decorators or not self.decorating):
            return
        self.hooks.add(function)
        self.fixed[function] = 0
        self.of_decorators |= {function} if self.decorating else set()
        self.kinds.changed = True

    def launch_any(self, positional: list[ValueKind], keywords: dict[str | None, ValueKind], starred: bool) -> None:
        """Arguments of these kinds are given to something that may be any kernel of the pass."""
        for number, kind in enumerate(positional):
            self.kinds.join(LAUNCHED, number, kind)
        for name, kind in keywords.items():
            self.kinds.join(LAUNCHED, name or "**", kind)
        if starred:
            self.kinds.join(LAUNCHED, "**", max(positional))

    def give_methods(self, name: str, positional: list[ValueKind], keywords: dict[str | None, ValueKind]) -> ValueKind:
        """Give arguments of these kinds to all methods of this name; the kind of what they return. They are kept once
        for all methods, each of which takes them when it is looked at."""
        place = (METHODS, name)
        self.kinds.changed |= self.collected.note(name, None if None in keywords else len(positional))
        for number, kind in enumerate(positional):
            self.kinds.join(place, number, kind)
        for keyword, kind in keywords.items():
            self.kinds.join(place, keyword or "**", kind)
        return self.kinds.get(place, RETURN)

    def take_given(self, method: ast.FunctionDef, bound: bool) -> None:
        """Let a method's parameters be what was given to methods of its name."""
        place = (METHODS, method.name)
        spread = self.kinds.get(place, "**").item()
        own = parameters(method)[1 if bound else 0 :]
        for number, parameter in enumerate(own):
            given = joined((self.kinds.get(place, number), self.kinds.get(place, parameter.arg), spread))
            if method.name in ("__call__", "__init__") and (number == 0 or self.called_by_triton.is_tensor):
                given = joined((given, self.called_by_triton))
            self.kinds.join(method, parameter.arg, given)

    def take_as_value(self, function: ast.FunctionDef) -> None:
        """Let the parameters of a function that is a value somewhere be what calls give to such a one: each that names
        no function may be of it. Anything, if a library may call it."""
        place = (METHODS, VALUES)
        spread = self.kinds.get(place, "**").item()
        for number, parameter in enumerate(parameters(function)):
            name = parameter.arg
            given = joined((self.kinds.get(place, number), self.kinds.get(place, name), spread))
            if parameter in (function.args.vararg, function.args.kwarg):
                given = ValueKind.HOLDER
            elif self.called_by_libraries:
                given = ValueKind.TENSOR
            self.kinds.join(function, name, given)
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

    def gets_a_launch(self, scope: Scope) -> bool:
        """Whether a function is called by Triton, with the dict of a launch, and by nobody else with another dict."""
        method = scope.node in self.classes_of_methods
        place = (METHODS, scope.node.name) if method else None
        by_triton = method and scope.node.name == "__call__" and self.called_by_triton is ValueKind.HOLDER
        if not (scope.hook or by_triton) or scope.node in self.escaped:
            return False
        names = [p.arg for p in parameters(scope.node)] if method else []
        return not any(self.kinds.get(place, given).holds_tensors for given in (0, 1, "**", *names))

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

    def launched(self, name: str) -> ValueKind:
        """What kernels of the pass may get as the argument of this name."""
        places = (self.kinds.get(LAUNCHED, number) for number in self._kernel_places.get(name, ()))
        spread = self.kinds.get(LAUNCHED, "**")
        own = ValueKind.TENSOR if spread.holds_tensors else ValueKind.SCALAR
        return joined((self.kinds.get(LAUNCHED, name), own, *places))

    def rest_of(self, node: ast.expr) -> list[ValueKind] | None:
        """The kinds of what `args` or `args[1:]` holds, item by item, in a function that collects `*args`; None where
        calls do not tell, or have different numbers of arguments."""
        part = item_parts.constant_slice(node)
        name = node.value if part is not None else node
        function = self.collected.function_of(name)
        lengths = self.collected.lengths(function, self.escaped | self.hooks) if function is not None else None
        if lengths is None or len(lengths) > 1:
            return None
        first, place = self.collected.first[function], self._place_of(function)
        items = [self.kinds.get(place, number) for number in range(first, max(lengths, default=first))]
        return items if part is None else items[part]

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
        return function if function in self.homes else (METHODS, function.name)

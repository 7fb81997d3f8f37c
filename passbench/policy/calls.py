"""The static policy on calls in host code: of torch, of the pass's own functions, of built-ins and of methods."""

import ast
import itertools
import re
from collections import Counter, OrderedDict, deque
from collections.abc import Sequence

from passbench.policy import allowlists as names
from passbench.policy import operators
from passbench.policy.addresses import is_constant
from passbench.policy.bindings import FIELDS, HOOK, LAUNCHED, WRITE_ADVICE
from passbench.policy.classes import lineage, own_fields
from passbench.policy.expressions import Expressions
from passbench.policy.modules import Module
from passbench.policy.scopes import RETURN, Scope, ValueKind, defaults, parameters
from storage.graph import targets

_KEYED = frozenset("get setdefault pop index count".split())
_OF_CONTAINERS = {n for kind in (set, Counter, deque, OrderedDict) for n in dir(kind)} & targets.methods()
"""Methods of containers that tensors have too: of what is no tensor they are the container's, such as `set.add`."""
Keywords = dict[str | None, ValueKind]


class Calls(Expressions):
    """Follows kinds through calls, and refuses those that read values, write to what is not theirs, or know more than
    their arguments."""

    def _arguments(self, node: ast.Call, scope: Scope, hook: bool = False) -> tuple[list[ValueKind], Keywords]:
        positional = [self.kind(a, scope, hook=hook) for a in node.args]
        keywords: Keywords = {}
        for keyword in node.keywords:  # ** may be there several times
            kind = self.kind(keyword.value, scope, hook=hook)
            keywords[keyword.arg] = max(kind, keywords.get(keyword.arg, kind))
            self.check_option(keyword.arg, node, scope)
        return positional, keywords

    def pass_arguments(self, function: ast.FunctionDef, positional: list[ValueKind], keywords: Keywords) -> ValueKind:
        """Hand arguments of these kinds to a function or kernel of the pass; returns the kind of its result."""
        self.steps.take(len(parameters(function)))
        order = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        for name, kind in zip(order, positional, strict=False):
            self.kinds.join(function, name, kind)
        for name, kind in keywords.items():
            if name is not None:
                self.kinds.join(function, name, kind)
        known = {a.arg for a in parameters(function)}
        self._collect(function, function.args.vararg, positional[len(order) :])
        self._collect(function, function.args.kwarg, [k for name, k in keywords.items() if name not in known])
        if keywords.get(None, ValueKind.SCALAR).holds_tensors:  # **kwargs may go anywhere but where a keyword goes
            for parameter in parameters(function):
                if parameter.arg not in keywords:
                    self.kinds.join(function, parameter.arg, ValueKind.TENSOR)
        return self.kinds.get(function, RETURN)

    def _collect(self, function: ast.FunctionDef, into: ast.arg | None, kinds: Sequence[ValueKind]) -> None:
        """Arguments of these kinds are collected in a parameter `*rest` or `**rest`."""
        if into is not None:
            self.kinds.join(function, into.arg, self.holder(list(kinds)))

    def check_cached(self, function: ast.FunctionDef, module: Module) -> None:
        """Report a cached function that gets tensors: its cache would remember earlier calls."""
        given = max((self.kinds.get(function, p.arg) for p in parameters(function)), default=ValueKind.SCALAR)
        if given.holds_tensors:
            message = f"{function.name} is cached and gets a tensor; give it shapes, dtypes and numbers"
            self.find("cached_tensor", module, function, message)

    def decorator_arguments(self, node: ast.Call, dotted: str, scope: Scope) -> None:
        """Arguments of `triton.jit`, `autotune` and `heuristics`; the latter's values must be plain numbers."""
        self._arguments(node, scope, hook=dotted in names.KERNEL_DECORATORS)
        for keyword in node.keywords:
            if keyword.arg == "prune_configs_by" and not _prunes_early(keyword.value):
                message = "rank configurations in early_config_prune; no other function of prune_configs_by is allowed"
                self.find("prune_configs_by", scope.module, node, message)
            if keyword.arg == "do_bench":
                self.find("hook", scope.module, node, "Triton times configurations itself; leave do_bench out")
        if dotted != "triton.heuristics":
            return
        for argument in (*node.args, *(k.value for k in node.keywords)):
            for value in argument.values if isinstance(argument, ast.Dict) else [argument]:
                if not (isinstance(value, ast.Lambda) and _is_plain(value.body, scope.module)):
                    message = "a heuristic is a lambda whose value is a comparison, or a min, max, int or bool"
                    self.find("heuristic", scope.module, value, message)

    def call(self, node: ast.Call, scope: Scope) -> ValueKind:
        function = self.host_function(node.func, scope)
        if function is not None:
            self.check_callable(function, node, scope)
            positional, keywords = self._arguments(node, scope)
            if function in self.hooks and any(k.holds_tensors for k in (*positional, *keywords.values())):
                message = f"{function.name} is a grid or hook of Triton, which alone calls it"
                self.find("dynamic_call", scope.module, node, message)
            return self._pass_starred(node, function, positional, keywords)
        own = self.own_class(node.func, scope)
        if own is not None:
            return self._construct(node, own, scope)
        dotted = scope.module.dotted(node.func)
        if dotted is not None:
            return self._call_dotted(node, dotted, scope)
        if isinstance(node.func, ast.Name):
            return self._call_name(node, node.func.id, scope)
        if isinstance(node.func, ast.Attribute):
            return self._call_method(node, node.func, scope)
        if isinstance(node.func, ast.Subscript):  # kernel[grid](...), or a function out of a table
            self.kind(node.func.value, scope)
            if self._is_made(node.func.slice, self.kind(node.func.slice, scope, hook=True), scope):
                self.read("a grid is made of numbers", scope, node)
            self._launch(node, self._kernel(node.func.value, scope), *self._arguments(node, scope))
            return ValueKind.TENSOR
        self.kind(node.func, scope)
        self._arguments(node, scope)
        self.find("dynamic_call", scope.module, node, "call functions of the pass by name")
        return ValueKind.TENSOR

    def _construct(self, node: ast.Call, own: ast.ClassDef, scope: Scope) -> ValueKind:
        """An instance of a class of the pass: its fields are of the kinds that it is made with."""
        positional, keywords = self._arguments(node, scope)
        if max((*positional, *keywords.values()), default=ValueKind.SCALAR).holds_tensors and self._is_error(own):
            self.read("what an error is made with can be read off its text", scope, node)
        ancestors = lineage(self.modules, self.class_homes[own], own)
        self.steps.take(len(ancestors))
        statements = [s for one in ancestors for s in one.body]
        initial = next((s for s in statements if isinstance(s, ast.FunctionDef) and s.name == "__init__"), None)
        if initial is not None:
            self._pass_starred(node, initial, [ValueKind.SCALAR, *positional], keywords)
            return ValueKind.SCALAR
        given = max((*positional, keywords.get(None, ValueKind.SCALAR)), default=ValueKind.SCALAR)
        for number, name in enumerate(own_fields(statements)):
            if number < len(positional) or name in keywords or None in keywords:
                self.shared.add((FIELDS, name))
            self.kinds.join(FIELDS, name, max(given, keywords.get(name, ValueKind.SCALAR)))
        return self.holder([given])  # a NamedTuple can be unpacked

    def _is_error(self, own: ast.ClassDef) -> bool:
        bases = (b for one in lineage(self.modules, self.class_homes[own], own) for b in one.bases)
        return any(isinstance(b, ast.Name) and b.id in names.ERRORS for b in bases)

    def _pass_starred(
        self, node: ast.Call, function: ast.FunctionDef, positional: list[ValueKind], keywords: Keywords
    ) -> ValueKind:
        extra = len(positional) - len(node.args)  # an instance
        stars = [n + extra for n, a in enumerate(node.args) if isinstance(a, ast.Starred)]
        if stars:
            self._collect(function, function.args.vararg, positional[stars[0] :])
            positional = _spread(function, positional, set(keywords), stars, function in self.kernel_homes)
        return self.pass_arguments(function, positional, keywords)

    def _kernel(self, node: ast.expr, scope: Scope) -> ast.FunctionDef | None:
        """The kernel that an expression names, here or in a sibling; None if it is not a plain name."""
        dotted = scope.module.dotted(node)
        place = scope.module.sibling_function(dotted) if dotted else None
        if place is not None:
            return self.modules[place[0]].kernels.get(place[1]) if place[0] in self.modules else None
        if isinstance(node, ast.Name) and scope.find(node.id) is self.scopes[scope.module.name]:
            return scope.module.kernels.get(node.id)
        return None

    def _launch(
        self, node: ast.Call, kernel: ast.FunctionDef | None, positional: list[ValueKind], keywords: Keywords
    ) -> None:
        """Note what a kernel gets, since Triton hands it to hooks. `kernel` None: it may be any kernel of the pass."""
        if kernel is None:
            self.launch_any(positional, keywords, any(isinstance(a, ast.Starred) for a in node.args))
            self._give(node, "__call__", positional, keywords)
            self._give(node, "__init__", positional, keywords)
            return
        self._pass_starred(node, kernel, positional, keywords)
        for parameter in parameters(kernel):
            self.kinds.join(LAUNCHED, parameter.arg, self.kinds.get(kernel, parameter.arg))

    def _call_dotted(self, node: ast.Call, dotted: str, scope: Scope) -> ValueKind:
        if dotted in ("functools.reduce", "functools.partial") and node.args:
            return self._call_higher(node, dotted, scope)
        if dotted in ("collections.defaultdict", "dataclasses.field"):
            return self._call_with_types(node, scope)
        if dotted == names.CAPTURED:
            return self._call_captured(node, scope, node.args)
        if dotted == names.BRANCH:
            number = node.args[0] if node.args else node
            if not isinstance(number, ast.Constant) or type(number.value) is not int:
                self.find("launch", scope.module, node, "branch takes its number, written out, then as captured does")
            return self._call_captured(node, scope, node.args[1:])
        positional, keywords = self._arguments(node, scope)
        given = max((*positional, *keywords.values()), default=ValueKind.SCALAR)
        if dotted == names.LAUNCH:
            kernel = self._kernel(node.args[0], scope) if node.args else None
            if kernel is None:
                message = "Launch takes a @triton.jit kernel of the pass by its name, then the grid and constants"
                self.find("launch", scope.module, node, message)
            else:
                self._fix_constants(kernel, keywords)
            if given.holds_tensors:
                self.find("launch", scope.module, node, "call the launch with the tensors; Launch takes none")
            return ValueKind.SCALAR
        place = scope.module.sibling_function(dotted)
        if place is not None:
            self.check_sibling(place, node, scope)
            self._launch(node, None, positional, keywords)
            return ValueKind.TENSOR
        if dotted == "dataclasses.asdict" and self.kinds.holds_tensors(FIELDS):
            return ValueKind.HOLDER
        if dotted in names.SCALAR_CALLS | names.MATH:
            if given.holds_tensors and dotted not in names.ABOUT_TENSORS:
                self.read(f"{dotted} of a tensor is a number of the host", scope, node)
            return ValueKind.SCALAR
        if dotted == names.PLAN_FOR:  # its table holds no tensors, and it looks at dtypes and sizes alone
            return ValueKind.SCALAR
        if dotted in names.COLLECTING_CALLS:
            self._call_back(given)  # `accumulate` calls what it gets
            return self.holder([given])
        if dotted in names.ALLOCATORS:
            if keywords.get("out", ValueKind.OWN) is not ValueKind.OWN:
                self.find("in_place", scope.module, node, f"{dotted} writes into its out=; {WRITE_ADVICE}")
            self._check_numbers(node, dotted, dotted, node.args, positional, keywords, scope)
            return ValueKind.TENSOR if dotted == "torch.as_tensor" and given.holds_tensors else ValueKind.OWN
        stored = operators.stored_name(dotted)
        if stored is None:
            self.refuse_name(node, dotted, scope)
            return ValueKind.SCALAR  # one finding is enough
        return self._library(node, dotted, stored, list(node.args), [*positional], keywords, scope)

    def _fix_constants(self, kernel: ast.FunctionDef, constants: Keywords) -> None:
        """A `Launch` is called with what is not among its constants, tensors all of it, by whoever calls it."""
        for parameter in parameters(kernel):
            if parameter.arg not in constants and not is_constant(parameter):
                self.kinds.join(kernel, parameter.arg, ValueKind.TENSOR)
                self.kinds.join(LAUNCHED, parameter.arg, ValueKind.TENSOR)

    def _library(
        self,
        node: ast.Call,
        name: str,
        stored: str,
        arguments: list[ast.expr],
        positional: list[ValueKind],
        keywords: Keywords,
        scope: Scope,
    ) -> ValueKind:
        """A call of one of torch's operators, `name` as written."""
        if scope.hook and max((*positional, *keywords.values()), default=ValueKind.SCALAR).holds_tensors:
            self.find("hook", scope.module, node, HOOK)
        named = {k.arg: k.value for k in node.keywords if k.arg is not None}
        self._check_numbers(node, name, stored, arguments, positional, keywords, scope)
        call = operators.library_call(stored, arguments, named)
        if call.random:
            message = f"{name} draws random numbers; a pass computes from its inputs alone (dropout: training=False)"
            self.find("random", scope.module, node, message)
        if call.reading:
            self.read(f"{name} reads values", scope, node)
        kinds = dict(zip(map(id, arguments), positional, strict=False))
        kinds |= {id(named[key]): kind for key, kind in keywords.items() if key is not None}
        for written in call.written:
            if not isinstance(written, ast.Constant) and kinds.get(id(written)) is not ValueKind.OWN:
                message = f"{name} writes into {ast.unparse(written)}; {WRITE_ADVICE}"
                self.find("in_place", scope.module, node, message)
        if call.scalar:
            if stored in targets.SYMBOLIC and max((*positional, *keywords.values())).holds_tensors:
                self.read(f"{name} is for numbers", scope, node)
            return ValueKind.SCALAR
        first = positional[0] if positional else ValueKind.SCALAR
        if stored.startswith("operator.") and not max((*positional, *keywords.values()), default=first).is_tensor:
            return max(positional, default=ValueKind.SCALAR)
        if call.written:
            return ValueKind.OWN
        if call.views:
            return first if first is ValueKind.OWN else ValueKind.TENSOR
        return ValueKind.OWN if call.fresh else ValueKind.TENSOR

    def _check_numbers(
        self,
        node: ast.Call,
        name: str,
        stored: str,
        arguments: list[ast.expr],
        positional: list[ValueKind],
        keywords: Keywords,
        scope: Scope,
    ) -> None:
        """Report a tensor where an operator, or a method of tensors, needs a number: torch reads it for that.

        A tensor is one that the pass has made here. Of a parameter, which may be either, the evidence tells.
        """
        pairs = zip(arguments, positional, strict=False)
        plain = itertools.takewhile(lambda pair: not isinstance(pair[0], ast.Starred), pairs)
        places = [*enumerate(plain), *((k.arg, (k.value, keywords[k.arg])) for k in node.keywords if k.arg is not None)]
        for place, (value, kind) in places:
            number = self._is_made(value, kind, scope) and operators.is_number(stored, place)
            if number or (kind is not ValueKind.SCALAR and operators.is_read_unseen(stored, place)):
                self.read(f"{name} needs a number, or numbers, where it gets a tensor", scope, node)

    def _is_made(self, node: ast.expr, kind: ValueKind, scope: Scope) -> bool:
        """Whether an expression of this kind is a tensor that the pass has made here, or a tuple or list of such."""
        parts = node.elts if isinstance(node, ast.Tuple | ast.List) and kind.holds_tensors else []
        return ValueKind.OWN in (kind, *(self.kind(part, scope) for part in parts))

    def _call_captured(self, node: ast.Call, scope: Scope, given: list[ast.expr]) -> ValueKind:
        """`captured(function, *arguments)`: the function gets copies, so none of its arguments is its own. Nor are they
        in `branch(number, function, *arguments)`: other branches read them at the same time."""
        function = self.host_function(given[0], scope) if given else None
        if function is None or function in self.cached or node.keywords:
            message = "captured and branch take a function of the pass by its name, then its arguments in order"
            self.find("launch", scope.module, node, message)
            return ValueKind.TENSOR
        self.check_callable(function, node, scope)
        kinds = [self.kind(a, scope) for a in given[1:]]
        if any(kind is ValueKind.HOLDER for kind in kinds):
            message = "captured and branch hand on tensors and numbers, one by one; lists and tuples stay outside"
            self.find("launch", scope.module, node, message)
        if scope.hook:
            self.find("hook", scope.module, node, HOOK)
        taken = [ValueKind.TENSOR if kind.holds_tensors else kind for kind in kinds]
        rest = ast.Call(given[0], given[1:], [])
        self._pass_starred(ast.copy_location(rest, node), function, taken, {})
        return ValueKind.TENSOR

    def _call_higher(self, node: ast.Call, dotted: str, scope: Scope) -> ValueKind:
        """`functools.reduce` and `partial`: the first argument is a function, which gets the others. `reduce` alone may
        get `min` and `max`, of numbers: a partial function gets what this call does not show."""
        function, reduces = node.args[0], dotted == "functools.reduce"
        known = (
            None
            if reduces or any(isinstance(a, ast.Starred) for a in node.args)
            else self.host_function(function, scope)
        )
        chooses = reduces and isinstance(function, ast.Name) and function.id in ("min", "max")
        chooses = chooses and scope.find(function.id) is None
        if not chooses and known is None and self._kernel(function, scope) is None:
            self.kind(function, scope)
        kinds = [self.kind(a, scope) for a in node.args[1:]] + [self.kind(k.value, scope) for k in node.keywords]
        if chooses and any(kind.holds_tensors for kind in kinds):
            self.read(f"{function.id}() of a tensor needs its values", scope, node)
        if known is not None:
            self._fix_first(known, kinds[: len(node.args) - 1], node, scope)
        if kinds:
            self.launch_any(kinds, {}, starred=True)
            self._call_back(max(kinds))
        found = self.holder(kinds)
        return found.item() if reduces else found

    def _fix_first(self, function: ast.FunctionDef, given: list[ValueKind], node: ast.Call, scope: Scope) -> None:
        """A partial function gets these arguments first. All others are its caller's, and may be tensors."""
        self.check_callable(function, node, scope)
        self.pass_arguments(function, given, {})
        fixed = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][: len(given)]
        for parameter in parameters(function):
            starred = parameter in (function.args.vararg, function.args.kwarg)
            if parameter.arg not in fixed:
                self.kinds.join(function, parameter.arg, ValueKind.HOLDER if starred else ValueKind.TENSOR)

    def _call_back(self, kind: ValueKind) -> None:
        """Something of this kind is given to what may be a class of the pass, or an instance of one."""
        for name in ("__init__", "__call__"):
            self.give_methods(name, [], {None: kind})

    def _call_with_types(self, node: ast.Call, scope: Scope) -> ValueKind:
        """`defaultdict(list)`, `field(default_factory=dict)`: built-in types make what is empty."""
        kinds = [ValueKind.SCALAR]
        for value in (*node.args, *(k.value for k in node.keywords)):
            plain = isinstance(value, ast.Name) and value.id in names.CONTAINER_TYPES and scope.find(value.id) is None
            if not plain and self.own_class(value, scope) is None:
                kinds.append(self.kind(value, scope))
        return self.holder(kinds)

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
            message = "type() is for comparisons such as type(x) is int; elsewhere write isinstance"
            self.find("forbidden_name", scope.module, node, message)
            return ValueKind.SCALAR
        if name == "print" and owner is None and any(k.arg not in ("sep", "end", "flush") for k in node.keywords):
            self.find("forbidden_name", scope.module, node, "print goes to the log and takes sep, end and flush alone")
        if name in ("str", "repr") and owner is None:
            for argument in node.args:
                self.check_text(argument, scope)
        positional, keywords = self._arguments(node, scope)
        given = max((*positional, *keywords.values()), default=ValueKind.SCALAR)
        if owner is not None:
            if name in owner.lambdas and given.holds_tensors:
                message = f"{name} is a lambda and gets a tensor; write a function with def"
                self.find("dynamic_call", scope.module, node, message)
            self._launch(node, None, positional, keywords)
            return ValueKind.TENSOR
        if name not in names.HOST_BUILTINS:
            self.unknown(name, node, scope.module)
            return ValueKind.SCALAR  # one finding is enough
        if name in names.COMPUTING_BUILTINS:
            if scope.hook and given.holds_tensors:
                self.find("hook", scope.module, node, HOOK)
            return ValueKind.OWN if given.holds_tensors else given
        if name in names.ERRORS and given.holds_tensors:
            self.read("what an error is made with can be read off its text", scope, node)
        keys = name in ("set", "frozenset") and given.holds_tensors
        if (name in names.READING_BUILTINS and given.holds_tensors) or (name in ("range", "slice") and given.is_tensor):
            self.read(f"{name}() of a tensor needs its values", scope, node)
            return ValueKind.SCALAR
        if keys:
            self.read("a tensor is no key: it stands for itself alone, not for its values", scope, node)
        if name in names.READING_BUILTINS or name in ("len", "range", "callable"):
            return ValueKind.SCALAR
        return given.item() if name == "next" else self.holder([given])

    def _has_attribute(self, node: ast.Call, scope: Scope) -> ValueKind:
        """`hasattr(tl, "NAME")`: whether a module that a pass may use, or a value, has a public name."""
        name = node.args[1].value if len(node.args) == 2 and isinstance(node.args[1], ast.Constant) else None
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_") or node.keywords:
            self.find("forbidden_name", scope.module, node, "hasattr takes a value and a public name, written out")
        if node.args and scope.module.dotted(node.args[0]) not in names.MODULES:
            self.kind(node.args[0], scope)
        return ValueKind.SCALAR

    def _call_of_class(self, node: ast.Call, own: ast.ClassDef, name: str, scope: Scope) -> ValueKind | None:
        """`NAME.method(…)` of a class of the pass: the method is known. None if the class itself has none of that name.

        `apply` of a `torch.autograd.Function` is its `forward`.
        """
        functional = any(scope.module.dotted(base) == names.FUNCTION for base in own.bases)
        methods = [s for s in own.body if isinstance(s, ast.FunctionDef)]
        found = [method for method in methods if method.name == name]
        context = functional and name == "apply" and not found
        if context:
            found = [method for method in methods if method.name == "forward"]
        if not found or (name in self.fields and name not in self.methods):
            return None
        positional, keywords = self._arguments(node, scope)
        results = [ValueKind.SCALAR]
        for method in found:
            first = context or any(ast.unparse(d) == "classmethod" for d in method.decorator_list)
            given = [ValueKind.SCALAR, *positional] if first else positional  # the context, or the class
            results.append(self._pass_starred(node, method, given, keywords))
        return max(results)

    def _call_method(self, node: ast.Call, method: ast.Attribute, scope: Scope) -> ValueKind:
        name = method.attr
        own = self.own_class(method.value, scope)
        found = self._call_of_class(node, own, name, scope) if own is not None else None
        if found is not None:
            return found
        base = self.kind(method.value, scope)
        positional, keywords = self._arguments(node, scope)
        given = max((*positional, *keywords.values()), default=ValueKind.SCALAR)
        if name in self.methods or (name in self.fields and not base.is_tensor):
            return self._call_own(node, name, positional, keywords)
        if name in names.METADATA_METHODS:
            if ValueKind.OWN in positional:
                self.read(f".{name}() takes a number", scope, node)
            return ValueKind.SCALAR
        if name in names.VIEW_METHODS:
            of = [method.value, *node.args], [base, *positional]
            self._check_numbers(node, f".{name}()", f".{name}", *of, keywords, scope)
            return ValueKind.OWN if name.startswith("new_") else base
        if name in names.CONTAINER_METHODS and not base.is_tensor:
            if (
                name in ("get", "setdefault", "pop", "index", "count")
                and positional[:1]
                and positional[0].holds_tensors
            ):
                self.read("a tensor is no key of a list or dict", scope, node)
            if name in names.PUTTING_METHODS:
                self.put_into(method.value, given, scope)
            return ValueKind.TENSOR if base.holds_tensors or given.holds_tensors else max(base, given)
        if name in names.STRING_METHODS | names.LOGGING_METHODS and not base.holds_tensors:
            if given.holds_tensors:
                self.read("the text of a tensor has its values", scope, node)
            return ValueKind.SCALAR
        if name in names.NUMBER_METHODS and not base.holds_tensors:
            return ValueKind.SCALAR
        if name in names.CONTEXT_METHODS and not base.holds_tensors:
            return ValueKind.SCALAR  # the context of a torch.autograd.Function, which ends with the call
        if name == "format" and not base.holds_tensors and _is_plain_format(method.value):
            for argument in (*node.args, *(k.value for k in node.keywords)):
                self.check_text(argument, scope)
            if given.holds_tensors:
                self.read("the text of a tensor has its values", scope, node)
            return ValueKind.SCALAR
        if name in _OF_CONTAINERS and base in (ValueKind.SCALAR, ValueKind.HOLDER) and given.holds_tensors:
            self.read("a tensor is no key: it stands for itself alone, not for its values", scope, node)
        if operators.is_method(name) and not name.startswith("_"):
            arguments = [method.value, *node.args]
            if name == "type" and not node.args and not node.keywords:
                return ValueKind.SCALAR
            return self._library(node, f".{name}()", f".{name}", arguments, [base, *positional], keywords, scope)
        rule = "private_name" if name.startswith("_") else "tensor_method"
        advice = names.advice(name) or "tensors have public methods"
        self.find(rule, scope.module, node, f"method {name}() is not allowed in host code; {advice}")
        return ValueKind.SCALAR  # one finding is enough

    def _call_own(self, node: ast.Call, name: str, positional: list[ValueKind], keywords: Keywords) -> ValueKind:
        """A method of a class of the pass, or a function that a field holds."""
        if name not in self.methods:
            self._launch(node, None, positional, keywords)
            return ValueKind.TENSOR
        return self._give(node, name, positional, keywords)

    def _give(self, node: ast.Call, name: str, positional: list[ValueKind], keywords: Keywords) -> ValueKind:
        """Arguments for all methods of this name; a starred one may be any."""
        if any(isinstance(a, ast.Starred) for a in node.args):
            worst = max([*positional, keywords.get(None, ValueKind.SCALAR)])
            keywords = {**keywords, None: worst}
        return self.give_methods(name, positional, keywords)

    def _is_type(self, node: ast.expr, scope: Scope) -> bool:
        if isinstance(node, ast.Tuple):
            return all(self._is_type(e, scope) for e in node.elts)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._is_type(node.left, scope) and self._is_type(node.right, scope)
        if isinstance(node, ast.Name) and scope.find(node.id) is None and node.id in names.TYPES:
            return True
        return scope.module.dotted(node) in names.TYPES or self.own_class(node, scope) is not None


_PLAIN_FIELD = re.compile(r"[^{}]|\{\{|\}\}|\{\w*(:[^{}]*)?\}")


def _is_plain_format(node: ast.expr) -> bool:
    """Whether an expression is a format, written out, whose fields are values and none of their attributes."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    return re.fullmatch(f"({_PLAIN_FIELD.pattern})*", node.value, re.DOTALL) is not None


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


def _prunes_early(node: ast.expr) -> bool:
    """Whether `prune_configs_by` is written out and prunes without a performance model, which gets every argument."""
    if not isinstance(node, ast.Dict):
        return False
    return all(isinstance(k, ast.Constant) and k.value in ("early_config_prune", "top_k") for k in node.keys)


def _is_plain(node: ast.expr, module: Module) -> bool:
    """Whether the value of an expression is a Python number or boolean, whatever its operands are."""
    if isinstance(node, ast.Call):
        named = isinstance(node.func, ast.Name) and node.func.id in names.HEURISTIC_CALLS
        return named or module.dotted(node.func) in ("triton.next_power_of_2", "triton.cdiv")
    if isinstance(node, ast.IfExp):
        return _is_plain(node.body, module) and _is_plain(node.orelse, module)
    if isinstance(node, ast.BoolOp):
        return all(_is_plain(v, module) for v in node.values)
    return isinstance(node, ast.Constant | ast.Compare)

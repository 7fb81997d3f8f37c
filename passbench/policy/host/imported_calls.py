"""The static policy on calls of what a pass imports: torch, the standard library, `passbench.launch` and siblings."""

import ast

from passbench.policy import allowlists as names
from passbench.policy import operators
from passbench.policy.flow.computing import reduces_by_operator
from passbench.policy.host.bindings import FIELDS, HOOK, WRITE_ADVICE
from passbench.policy.host.given import Keywords
from passbench.policy.host.method_calls import MethodCalls
from passbench.policy.host.operator_calls import OperatorCall
from passbench.policy.kernels.launch_arguments import fault_of_constants
from passbench.policy.nodes import names_by_place, quoted
from passbench.policy.scopes import RETURN, Scope, ValueKind, joined, parameters


class ImportedCalls(MethodCalls):
    """Follows kinds through functions of other modules, and refuses those that are on no list."""

    def _call_dotted(self, node: ast.Call, dotted: str, scope: Scope) -> ValueKind:
        if dotted == "functools.partial" and node in self.to_graph:  # `passbench.policy.host.replacements` follows it
            return ValueKind.ADDRESS
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
        if dotted == "contextlib.suppress" and not node.keywords and all(self._is_error(a, scope) for a in node.args):
            return ValueKind.ADDRESS  # as `try: … except ERROR: pass`
        if dotted == "triton.Config":
            node = self._without_pre_hook(node, scope)
        if dotted.startswith("bisect."):
            node = self._without_key(node, dotted, [self.kind(a, scope).item() for a in node.args[:1]], scope)
            if any(k.arg is None for k in node.keywords):
                self.find("forbidden_call", scope.module, node, f"name each argument of {dotted}, its key too")
        if dotted == "itertools.accumulate" and (called := _accumulating(node)) is not None and node.args:
            initial = next((k.value for k in node.keywords if k.arg == "initial"), None)
            self.note_reduced(called, node.args[0], initial, scope)
        if dotted == "itertools.accumulate" and isinstance(called := _accumulating(node), ast.Lambda):
            rest = (a for a in (*node.args, *(k.value for k in node.keywords)) if a is not called)
            return self.holder([self._reduced_by_lambda(called, [self.kind(a, scope) for a in rest], scope)])
        positional, keywords = self._arguments(node, scope)
        given = max((*positional, *keywords.values()), default=ValueKind.SCALAR)
        handed = max((*positional[dotted == names.LAUNCH :], *keywords.values()), default=ValueKind.SCALAR)
        calls = dotted in _CALLING and handed >= ValueKind.ADDRESS
        if calls or (dotted in names.SCALAR_CALLS and handed is ValueKind.ADDRESS):
            self.let_libraries_call()
        if dotted == "triton.Config" and handed >= ValueKind.ADDRESS:
            self.let_triton_call(hooks=False)
        if dotted == names.LAUNCH:
            kernel = self._kernel(node.args[0], scope) if node.args else None
            if kernel is None:
                message = "Launch takes a @triton.jit kernel of the pass by its name, then the grid and constants"
                self.find("launch", scope.module, node, message)
            else:
                self._fix_constants(kernel, keywords)
                if self.report is not None and (fault := fault_of_constants(kernel, node)) is not None:
                    self.find("launch", scope.module, node, fault)
            if given.holds_tensors:
                self.find("launch", scope.module, node, "call the launch with the tensors; Launch takes none")
            return ValueKind.ADDRESS
        place = scope.module.sibling_function(dotted)
        if place is not None:
            self.check_sibling(place, node, scope)
            return self.call_unnamed(node, positional, keywords, scope)
        if dotted in ("warnings.filterwarnings", "warnings.simplefilter"):
            action = node.args[0] if node.args else None
            if not isinstance(action, ast.Constant) or action.value != "ignore":
                message = 'warnings are ignored, "ignore" written out, or left as they are: as errors they tell values'
                self.find("forbidden_call", scope.module, node, message)
        if dotted == "logging.basicConfig" and (node.args or not {k.arg for k in node.keywords} <= {"level", "format"}):
            self.find("forbidden_call", scope.module, node, "logging goes to the log; give level and format alone")
        if dotted == "numpy.prod" and node not in self.made_plain:
            message = "numpy.prod returns an object of numpy, with memory of its own; write int(numpy.prod(…)), or"
            self.find("forbidden_call", scope.module, node, f"{message} math.prod(…)")
        if dotted == "dataclasses.replace":
            self.replace_fields(keywords)
        in_parts = dotted in ("dataclasses.asdict", "dataclasses.astuple")
        made = in_parts and len((*positional, *keywords)) > 1 and handed >= ValueKind.ADDRESS  # by a factory
        if made:
            self.let_libraries_call()
        if in_parts and (made or self.kinds.holds_tensors(FIELDS)):
            return ValueKind.HOLDER
        if dotted in _CALLING_METHODS:
            given = max(given, self.returned_by_members(_CALLING_METHODS[dotted]))
        if dotted in names.SCALAR_CALLS | names.MATH:
            may_be_tensor = given is not ValueKind.SCALAR if dotted.startswith("numpy.") else given.holds_tensors
            if may_be_tensor and dotted not in names.ABOUT_TENSORS:
                self.read(f"{dotted} of a tensor is a number of the host", scope, node)
            copied = given is ValueKind.ADDRESS and dotted in (
                "dataclasses.asdict",
                "dataclasses.astuple",
                "dataclasses.replace",
            )
            return ValueKind.ADDRESS if copied or dotted in names.WITHOUT_TEXT else ValueKind.SCALAR
        if dotted == names.PLAN_FOR:  # its table holds no tensors, and it looks at dtypes and sizes alone
            return ValueKind.ADDRESS
        if dotted in names.COLLECTING_CALLS:
            self._check_count(node, dotted, positional, keywords, scope)
            self._call_back(given)  # `accumulate` calls what it gets
            if dotted == "collections.Counter" and given.holds_tensors:
                self.read("a Counter counts, and compares what it has counted", scope, node)
            if dotted == "itertools.accumulate" and (keywords or len(positional) != 1 or _is_starred(node.args[0])):
                self.let_libraries_call()
            if dotted == "itertools.accumulate" and (called := _accumulating(node)) is not None:
                given = max(given, self.holder([self.returned_by(called, scope)]))
            if dotted == "copy.copy" and (given.is_tensor or given is ValueKind.EITHER):
                return ValueKind.TENSOR  # another tensor on the same memory
            return self.holder([given.item(), self.returned((*positional, *keywords.values()))])
        if dotted in names.ALLOCATORS:
            if keywords.get("out", ValueKind.OWN) is not ValueKind.OWN:
                self.find("in_place", scope.module, node, f"{dotted} writes into its out=; {WRITE_ADVICE}")
            self._check_numbers(OperatorCall(node, dotted, dotted, node.args, positional, keywords, scope))
            return ValueKind.TENSOR if dotted == "torch.as_tensor" and given.holds_tensors else ValueKind.OWN
        stored = operators.stored_name(dotted)
        if stored is None:
            self.refuse_name(node, dotted, scope)
            return ValueKind.SCALAR  # one finding is enough
        return self._library(OperatorCall(node, dotted, stored, node.args, positional, keywords, scope))

    def _without_pre_hook(self, node: ast.Call, scope: Scope) -> ast.Call:
        """`triton.Config(…)` without its `pre_hook`, which Triton calls with the dict of each launch's arguments."""
        hooks = [k for k in node.keywords if k.arg == "pre_hook"]
        function = self.host_function(hooks[0].value, scope) if hooks else None
        if hooks:
            self.mark_called(hooks[0].value, scope)
        if function is None and not (hooks and isinstance(hooks[0].value, ast.Lambda)):
            return node
        if function is None:
            self.kind(hooks[0].value, scope, hook=True)
        else:
            self.seen.add(hooks[0].value)
            self.check_callable(function, hooks[0].value, scope)
            self.mark_hook(function)
        self.before_launches.add(function or hooks[0].value)
        rest = [k for k in node.keywords if k not in hooks]
        return ast.copy_location(ast.Call(node.func, node.args, rest), node)

    def _check_count(
        self, node: ast.Call, dotted: str, positional: list[ValueKind], keywords: Keywords, scope: Scope
    ) -> None:
        """Report a tensor that says how many items there are."""
        place, name = names.COUNTS.get(dotted, (None, ""))
        counts = [kind for key, kind in keywords.items() if key == name]
        for number, (argument, kind) in enumerate(zip(node.args, positional, strict=True)):
            if place is not None and (number >= place or isinstance(argument, ast.Starred)):
                counts.append(kind)
        if any(kind.holds_tensors for kind in counts):
            self.read(f"{dotted} needs the number of items", scope, node)

    def _call_captured(self, node: ast.Call, scope: Scope, given: list[ast.expr]) -> ValueKind:
        """`captured(function, *arguments)`: the function gets copies, so none of its arguments is its own. Nor are they
        in `branch(number, function, *arguments)`: other branches read them at the same time."""
        function = self.host_function(given[0], scope) if given else None
        if function is None or function in self.cached or node.keywords:
            message = "captured and branch take a function of the pass by its name, then its arguments in order"
            self.find("launch", scope.module, node, message)
            return ValueKind.TENSOR
        self.check_callable(function, node, scope)
        rest = ast.copy_location(ast.Call(given[0], given[1:], []), node)
        kinds, stars = self._expanded(rest, [self.kind(a, scope) for a in given[1:]])
        if stars or any(kind is ValueKind.HOLDER for kind in kinds):
            message = "captured and branch hand on tensors and numbers, one by one; lists and tuples stay outside"
            self.find("launch", scope.module, node, message)
        if scope.hook:
            self.find("hook", scope.module, node, HOOK)
        taken = [ValueKind.TENSOR if kind.holds_tensors else kind for kind in kinds]
        self.pass_arguments(function, taken, {}, self.single_arguments(rest, scope))
        return ValueKind.TENSOR

    def _call_higher(self, node: ast.Call, dotted: str, scope: Scope) -> ValueKind:
        """`functools.reduce` and `partial`: the first argument is a function, which gets the others. `reduce` alone may
        get `min` and `max`, of numbers: a partial function gets what this call does not show."""
        function, reduces = node.args[0], dotted == "functools.reduce"
        if reduces and len(node.args) > 1:
            self.note_reduced(function, node.args[1], next(iter(node.args[2:]), None), scope)
        own = self.host_function(function, scope) if reduces and not node.keywords else None
        if own is not None and len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args):
            first, *initial = [self.kind(a, scope) for a in node.args[1:]]
            before = joined((first.item(), *initial, self.kinds.get(own, RETURN)))
            return joined((before, self.called_back(own, [before, first.item()], function, scope)))
        if reduces and isinstance(function, ast.Lambda) and len(node.args) > 1:
            return self._reduced_by_lambda(function, [self.kind(a, scope) for a in node.args[1:]], scope)
        known = (
            None
            if reduces or any(isinstance(a, ast.Starred) for a in node.args)
            else self.host_function(function, scope)
        )
        chooses = reduces and isinstance(function, ast.Name) and function.id in ("min", "max")
        chooses = chooses and scope.find(function.id) is None
        computes = reduces_by_operator(node, scope.module.dotted)
        if computes:
            self.kind(function, scope)
        elif not chooses and known is None and self._kernel(function, scope) is None:
            self.kind(function, scope)
            self.let_libraries_call()
        kinds = [self.kind(a, scope) for a in node.args[1:]] + [self.kind(k.value, scope) for k in node.keywords]
        if chooses and any(kind.holds_tensors for kind in kinds):
            self.read(f"{function.id}() of a tensor needs its values", scope, node)
        fixed = scope.module.dotted(function)
        stored = operators.stored_name(fixed) if fixed is not None and not reduces else None
        if stored is not None:
            self._fix_operator(node, fixed, stored, kinds, scope)
        elif not reduces and known is None:
            self._fix_unknown(node, kinds, scope)
        if known is not None:
            self._fix_first(known, kinds[: len(node.args) - 1], node, scope)
        if kinds and not computes:
            self.launch_any(kinds, {}, starred=True)
            self._call_back(max(kinds))
        found = self.holder(kinds)
        return joined((found.item(), self.returned_by(function, scope))) if reduces else found

    def _reduced_by_lambda(self, function: ast.Lambda, given: list[ValueKind], scope: Scope) -> ValueKind:
        """`reduce` and `accumulate` by a lambda: it gets an item, and what it has returned before."""
        before = joined((*(kind.item() for kind in given), self.kinds.get(function, RETURN)))
        self.kinds.join(function, RETURN, self.called_lambda(function, before, scope))
        return joined((before, self.kinds.get(function, RETURN)))

    def _fix_operator(self, node: ast.Call, dotted: str, stored: str, kinds: list[ValueKind], scope: Scope) -> None:
        """A partial operator does what it does with these arguments; what it gets besides is its caller's."""
        given = node.args[1:]
        named = {k.arg: kind for k, kind in zip(node.keywords, kinds[len(given) :], strict=True)}
        call = OperatorCall(node, dotted, stored, given, kinds[: len(given)], named, scope)
        switches = (call.named.get(name) for name in ("inplace", *operators.switched_by(stored)))
        if any(s is not None and not (isinstance(s, ast.Constant) and not s.value) for s in switches):
            self.find("in_place", scope.module, node, f"{dotted} writes into what it is called with; {WRITE_ADVICE}")
        else:
            self._library(call)

    def _fix_unknown(self, node: ast.Call, kinds: list[ValueKind], scope: Scope) -> None:
        """A partial function of what a variable holds, which may be an operator: it writes by what is given here, or by
        what it gets besides."""
        rest = ast.copy_location(ast.Call(node.args[0], node.args[1:], node.keywords), node)
        keywords = {k.arg: kind for k, kind in zip(node.keywords[::-1], kinds[::-1], strict=False)}
        self.check_as_operator(rest, kinds[: len(rest.args)], keywords, scope)
        switches = {n for one in self.may_be(rest.func, scope) for n in ("inplace", *operators.switched_by(one))}
        for k in node.keywords if switches else ():
            if k.arg is None or (k.arg in switches and not (isinstance(k.value, ast.Constant) and not k.value.value)):
                message = f"{quoted(rest.func)} may be an operator that writes by what it gets here; {WRITE_ADVICE}"
                self.find("in_place", scope.module, node, message)

    def _fix_first(self, function: ast.FunctionDef, given: list[ValueKind], node: ast.Call, scope: Scope) -> None:
        """A partial function gets these arguments first. All others are its caller's, and may be tensors."""
        self.check_callable(function, node, scope)
        self.pass_arguments(function, given, {})
        self.names_given.setdefault(function, set()).add(None)
        if function in self.collected.first:
            self._note_collected(function, None)
        fixed = names_by_place(function)[: len(given)]
        for name, value in zip(fixed, node.args[1:], strict=False):
            if self.is_sequence(value, scope):
                self.note_sequence(function, name)
        for parameter in parameters(function):
            starred = parameter in (function.args.vararg, function.args.kwarg)
            if parameter.arg not in fixed:
                self.kinds.join(function, parameter.arg, ValueKind.HOLDER if starred else ValueKind.TENSOR)

    def _call_back(self, kind: ValueKind) -> None:
        """Something of this kind is given to what may be a class of the pass, or an instance of one."""
        for name in ("__init__", "__call__"):
            self.give_methods(name, [], {None: kind})

    def _call_with_types(self, node: ast.Call, scope: Scope) -> ValueKind:
        """`defaultdict(list)`, `field(default_factory=dict)`: built-in types make what is empty, and a class of the
        pass an instance. A class that stands elsewhere, as in `field(default=PLAN)`, is a value."""
        kinds = [ValueKind.SCALAR]
        of_field = scope.module.dotted(node.func) == "dataclasses.field"  # of a defaultdict that would be an item
        named = (k.value for k in node.keywords if k.arg in ("default_factory", None))
        factories = [*named] if of_field else node.args[:1]
        for value in (*node.args, *(k.value for k in node.keywords)):
            makes = any(value is one for one in factories)
            built_in = isinstance(value, ast.Name) and value.id in names.CONTAINER_TYPES
            if makes and built_in and scope.find(value.id) is None:
                continue
            own = self.own_class(value, scope) if makes else None
            if own is None:
                kinds.append(self.kind(value, scope))
                kinds += [self.returned_by(one, scope) for one in factories if one is value]
            else:
                self.seen.add(value)
                kinds.append(self._construct(ast.copy_location(ast.Call(value, [], []), value), own, scope))
        return self.holder(kinds)


_CALLING_METHODS = {"numpy.prod": "prod", "collections.OrderedDict": "items"}
"""Functions that call a method of what they get, if it has one of this name."""
_CALLING = names.LAUNCHING | {"triton.Config", "passbench.launch.LaunchPlan", "passbench.launch.PlanTable"}
"""Functions that make what calls their arguments, a kernel aside."""


def _accumulating(node: ast.Call) -> ast.expr | None:
    """The function that `itertools.accumulate` is given, or what holds it."""
    starred = [a for a in node.args if isinstance(a, ast.Starred)]
    return next(iter([*starred, *node.args[1:2], *(k.value for k in node.keywords if k.arg in ("func", None))]), None)


def _is_starred(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred)

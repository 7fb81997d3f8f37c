"""What calls in host code hand over and return (`passbench.policy.flow.value_flow`)."""

import ast
import collections

from passbench.policy import allowlists as names
from passbench.policy import operators
from passbench.policy.flow.class_parts import class_fields, decorator_names, is_property, members_of
from passbench.policy.flow.computing import reduces_by_operator
from passbench.policy.flow.groups import GivenGroups, Held, Instance
from passbench.policy.flow.values import ANYTHING, Values
from passbench.policy.forms.written_types import may_be_no_field
from passbench.policy.library_members import is_usable
from passbench.policy.scopes import Scope, built_in_called

_NOTHING_HELD = (
    names.MATH | names.ALLOCATORS
    | frozenset(
        """torch.finfo torch.iinfo torch.Size torch.device torch.promote_types torch.result_type
        torch.cuda.is_available torch.cuda.get_device_properties torch.cuda.get_device_capability
        torch.cuda.current_device torch.cuda.device_count torch.cuda.get_device_name torch.is_tensor
        torch.is_grad_enabled torch.cuda.is_bf16_supported torch.get_default_dtype torch.broadcast_shapes
        torch.cuda.synchronize triton.cdiv triton.next_power_of_2 triton.language.cdiv warnings.warn
        warnings.filterwarnings warnings.simplefilter logging.getLogger logging.basicConfig enum.auto numpy.prod
        contextlib.suppress functools.wraps""".split()
    )
)  # fmt: skip
"""Functions of libraries whose results hold no function, and that keep none."""
_HANDING_ON = (names.COLLECTING_CALLS - {"functools.reduce", "functools.partial", "itertools.accumulate"}) | {
    names.WRAP, "dataclasses.replace",
}  # fmt: skip
"""Functions of libraries whose results hold what their arguments hold, and no more."""
_ASKING = names.ALLOCATORS | names.ABOUT_TENSORS | names.LAUNCHING
"""Functions beside operators that ask what they get for its dtype, its shape and the like."""
_MAKING_NUMBERS = frozenset(
    """isinstance hasattr type print len range int float bool str repr round divmod callable abs pow any
    all""".split()
)
_COLLECTING = frozenset("min max sorted sum list tuple dict set frozenset reversed enumerate zip iter next".split())
_BY_KEY = frozenset("get pop setdefault index count".split())
_PLAIN_BASES = names.CLASS_BASES - {names.FUNCTION, "typing.TypedDict"}
_CONTAINERS = (list, dict, set, collections.Counter, collections.deque, collections.OrderedDict)
_METHODS_WITHOUT = (
    names.METADATA_METHODS | names.VIEW_METHODS | names.STRING_METHODS | names.LOGGING_METHODS | names.NUMBER_METHODS
    | names.CONTEXT_METHODS | {"format"}
)  # fmt: skip
_OF_CONTAINERS = frozenset(name for kind in _CONTAINERS for name in dir(kind))


class FlowCalls(Values):
    """Follows calls: of what is named at once, of all else when `Groups.settle` knows what it can be."""

    def _arguments(self, node: ast.Call, scope: Scope) -> GivenGroups:
        given = GivenGroups()
        for argument in node.args:
            value = self.handed[argument] = self._value(argument, scope)
            if isinstance(argument, ast.Starred) or given.spread:
                given.spread.append(value)
            else:
                given.positional.append(value)
        for keyword in node.keywords:
            value = self.handed[keyword.value] = self._value(keyword.value, scope)
            if keyword.arg is None:
                given.spread.append(value)
            else:
                given.named[keyword.arg] = value
        return given

    def _call(self, node: ast.Call, scope: Scope) -> int | None:
        if (function := self._pass.host_function(node.func, scope)) is not None:
            result = self.groups.pass_on(function, self._arguments(node, scope))
            known = self.groups.find(self._of_function(function, node.func, scope)) != ANYTHING
            return result if known else self.groups.join(ANYTHING, result)
        if (own := self._pass.own_class(node.func, scope)) is not None:
            return self._construct(own, self._arguments(node, scope))
        if isinstance(node.func, ast.Attribute):
            return self._method_call(node, node.func, scope)
        dotted = scope.module.dotted(node.func)
        if dotted is not None:
            return self._library_call(node, dotted, scope)
        if name := built_in_called(node, scope):
            return self._built_in_call(node, name, scope)
        return self._unnamed(node, self._value(node.func, scope), self._arguments(node, scope))

    def _unnamed(self, node: ast.Call, called: int | None, given: GivenGroups) -> int:
        self.called[node] = called if called is not None else ANYTHING
        return self.groups.note_call(self.called[node], given)

    def _construct(self, own: ast.ClassDef, given: GivenGroups) -> int:
        """An instance: what it is made with goes to its `__init__`, or into its fields."""
        facts, lineage = self._pass.facts(own), self._pass.lineage(own)
        if facts.initial is not None:
            self.groups.pass_on(facts.initial, given, 1)
        self._pass.steps.take(len(facts.fields))
        if facts.by_fields:
            fields = [self._field(name) for name in facts.fields]
            if own not in self._ordered:
                self._ordered[own] = self._in_order(own)
            plain = len(lineage) == 1 and not given.spread and self._ordered[own]
            if plain:
                for field, group in zip(fields, given.positional, strict=False):
                    self.groups.join(field, group)
            else:
                self.groups.join(*fields, *given.positional, *given.spread)
            for name, group in given.named.items():
                self.groups.join(self._field(name), group, *(given.spread if not plain else ()))
        made = self.groups.new(Instance(own))
        plain = all(self._is_plain_base(one, base) for one in lineage for base in one.bases)
        if not plain or "__call__" in self._pass.stored_names:
            made = self.groups.join(ANYTHING, made)
        if facts.is_enumeration or "typing.NamedTuple" in self._pass.bases_of(lineage):
            made = self.groups.join(made, *(self._field(name) for name in facts.fields))
        return made

    def _in_order(self, own: ast.ClassDef) -> bool:
        """Whether a class that is made with its fields takes them in the order of its text, all of them."""
        fields = frozenset(class_fields(own))
        for s in own.body:
            if isinstance(s, ast.AnnAssign):
                if not s.simple or may_be_no_field(s.annotation, lambda part: self._type_name(part, own, fields)):
                    return False
                if isinstance(s.value, ast.Call) and any(k.arg in ("init", "kw_only", None) for k in s.value.keywords):
                    return False
        called = (d for d in own.decorator_list if isinstance(d, ast.Call))
        return all(k.arg is not None for d in called for k in d.keywords)

    def _type_name(self, node: ast.expr, own: ast.ClassDef, fields: frozenset[str]) -> str | None:
        """What a name in a class's types stands for; None for a variable, the class's own `fields` too."""
        home = self._pass.class_homes[own]
        scope = self._pass.scopes[home.name]
        if isinstance(node, ast.Name) and node.id in fields:
            return None
        if (found := self._pass.own_class(node, scope)) is not None:
            return found.name
        dotted = home.dotted(node)
        if dotted is None:
            return node.id if isinstance(node, ast.Name) and scope.find(node.id) is None else None
        return None if dotted.partition(".")[0] in home.siblings else dotted

    def _is_plain_base(self, own: ast.ClassDef, base: ast.expr) -> bool:
        """Whether instances of a class are called by its own `__call__` alone, as far as a base says."""
        home = self._pass.class_homes[own]
        dotted = home.dotted(base)
        if own.name in home.torch_modules or own.name in home.namespaces:
            return False
        if dotted is None:
            return isinstance(base, ast.Name) and base.id in {"object", "str", "int", *names.ERRORS, *home.classes}
        return dotted in _PLAIN_BASES or home.sibling_function(dotted) is not None

    def _fields_of(self, target: Held) -> list[int]:
        if not isinstance(target, Instance):
            return []
        lineage = self._pass.lineage(target.own)
        return [self._field(name) for one in lineage for _, name in members_of(one)]

    def _call_held(self, target: Held, given: GivenGroups) -> int | None:
        """Hand arguments to what a group holds."""
        if isinstance(target, Instance):
            methods = self._pass.methods_of(target.own, "__call__")
            return self.groups.join(*(self.groups.pass_on(m, given, 1) for m in methods))
        if isinstance(target, ast.ClassDef):
            return self._construct(target, given)
        result = self.groups.pass_on(target, given)
        kernel = isinstance(target, ast.FunctionDef) and target in self._pass.kernel_homes
        return ANYTHING if kernel else result

    def _method_call(self, node: ast.Call, method: ast.Attribute, scope: Scope) -> int | None:
        name = method.attr
        own = self._pass.own_class(method.value, scope)
        dotted = scope.module.dotted(method)
        if own is None and dotted is not None and not scope.module.is_of_sibling(method):
            return self._library_call(node, dotted, scope)
        base = self._value(method.value, scope)
        if base is not None and own is None:
            self.bases[method] = base
        given = self._arguments(node, scope)
        results: list[int | None] = []
        called = [self._field(name)] if name in self._fields else []
        if name in self._methods:
            results.append(self.groups.hand(self._methods_of_name(name), given))
            called += [results[0]] if any(map(is_property, self._methods[name])) else []
        for one in self._pass.methods_of(own, name) if own is not None else ():  # the instance may stand first
            if decorator_names(one) != {"classmethod"}:
                results.append(self.groups.pass_on(one, given))
        if called:
            results.append(self._unnamed(node, self.groups.join(*called), given))
        if own is not None and name == "apply":
            for one in self._pass.facts(own).methods.get("forward", ()):
                results.append(self.groups.pass_on(one, given, 1))
        if own is not None and name == "__init__" and self._pass.facts(own).by_fields:
            self._construct(own, GivenGroups(spread=given.every()))
        if name == "_replace":
            self._set_fields(given)
        if self._is_own(method, scope):
            return self.groups.join(*results)
        if name in names.CONTAINER_METHODS:
            skipped = 1 if name in _BY_KEY else 0
            put = [*given.positional[skipped:], *given.named.values(), *given.spread]
            results.append(self.groups.join(base, *put))
            if skipped and given.positional and base is not None:
                self.groups.note_key(given.positional[0], base)
            if base is None and any(group is not None for group in put):
                results.append(self.groups.join(ANYTHING, *put))
        elif name == "sort" and given.named.keys() <= {"key", "reverse"} and not given.spread and not given.positional:
            key = next((k.value for k in node.keywords if k.arg == "key"), None)
            called = given.named.get("key")
            if key is not None and not self._is_called_back(name, key, scope):
                called = self.groups.join(ANYTHING, called)
            results.append(self.groups.note_call(called, GivenGroups([base])) if called is not None else None)
        elif not _gives_no_function(name):
            results.append(self.groups.join(ANYTHING, base, *given.every()))
        elif operators.is_method(name):
            self.given_to_torch += given.every()
        return self.groups.join(*results)

    def _is_own(self, method: ast.Attribute, scope: Scope) -> bool:
        """Whether a method that is called is one of the pass's classes alone."""
        if method.attr not in self._fields or not is_usable(method.attr):
            return method.attr in self._fields
        known, own = self._pass.known, self._classes.get(scope.node)
        of_self = isinstance(method.value, ast.Name) and method.value.id in self._instances.get(scope.node, ())
        if not of_self or own is None or known.is_value(own):
            own = self._pass.own_class(method.value, scope) or known.class_of(method.value, scope)
        return own is not None and bool(self._pass.methods_of(own, method.attr))

    def _library_call(self, node: ast.Call, dotted: str, scope: Scope) -> int | None:
        place = scope.module.sibling_function(dotted)
        if place is not None:
            return self._unnamed(node, self._value(node.func, scope), self._arguments(node, scope))
        if dotted in ("dataclasses.field", "collections.defaultdict"):
            return self._made_by_factory(node, scope)
        given = self._arguments(node, scope)
        if dotted in (names.CAPTURED, names.BRANCH):
            place = int(dotted == names.BRANCH)
            function = self._pass.host_function(node.args[place], scope) if len(node.args) > place else None
            if function is None:
                return self.groups.join(ANYTHING, *given.every())
            rest = GivenGroups(given.positional[place + 1 :], given.named, given.spread)
            return self.groups.pass_on(function, rest)
        if dotted == "dataclasses.replace":
            self._set_fields(given)
        if reduces_by_operator(node, scope.module.dotted):
            return self.groups.join(*given.positional[1:])
        if dotted in _HANDING_ON:
            return self.groups.join(*given.every())
        stored = operators.stored_name(dotted) if dotted.startswith("torch.") else None
        self.given_to_torch += given.every() if stored is not None or dotted in _ASKING else ()
        if dotted in _NOTHING_HELD or stored is not None:
            return None
        return self.groups.join(ANYTHING, *given.every())

    def _set_fields(self, given: GivenGroups) -> None:
        self._is_lost |= bool(given.spread)
        for name, group in given.named.items():
            self.groups.join(self._field(name), group)

    def _made_by_factory(self, node: ast.Call, scope: Scope) -> int | None:
        """`field(default_factory=dict)` and `defaultdict(list)`: what is made is what the factory returns."""
        found: list[int | None] = []
        factories = [*node.args[:1], *(k.value for k in node.keywords if k.arg == "default_factory")]
        for value in (*node.args, *(k.value for k in node.keywords)):
            factory = any(value is one for one in factories)
            built_in = isinstance(value, ast.Name) and value.id in names.CONTAINER_TYPES
            if built_in and scope.find(value.id) is None:
                continue
            group = self.handed[value] = self._value(value, scope)
            known = not factory or self._pass.own_class(value, scope) is not None
            found.append(group if known else self.groups.join(ANYTHING, group))
            if factory and known:
                found.append(self.groups.note_call(group, GivenGroups()))
        return self.groups.join(self.groups.new(), *found)

    def _is_called_back(self, name: str, function: ast.expr, scope: Scope) -> bool:
        """Whether `passbench.policy.host.built_in_calls` follows what a built-in calls with its other arguments."""
        if self._pass.host_function(function, scope) is not None:
            return name != "iter"
        variable = isinstance(function, ast.Name) and scope.find(function.id) is not None
        return (variable or isinstance(function, ast.Lambda)) and name != "iter"

    def _built_in_call(self, node: ast.Call, name: str, scope: Scope) -> int | None:
        calls = [k.value for k in node.keywords if k.arg == "key"] if name in ("min", "max", "sorted") else []
        if name in ("map", "filter") or (name == "iter" and len(node.args) > 1):
            calls = node.args[:1]
        plain = {id(v) for v in calls if isinstance(v, ast.Name) and v.id in names.HANDED_ON and not scope.find(v.id)}
        groups: list[int | None] = []
        functions: list[int | None] = []
        for value in (*node.args, *(k.value for k in node.keywords)):
            if id(value) in plain:
                continue
            if name == "isinstance" and value is not node.args[0]:
                continue
            found = self.handed[value] = self._value(value, scope)
            (functions if any(value is one for one in calls) else groups).append(found)
        starred = any(isinstance(value, ast.Starred) for value in node.args) or any(
            k.arg is None for k in node.keywords
        )
        handed = [ANYTHING] if starred or not all(self._is_called_back(name, f, scope) for f in calls) else []
        if handed and (functions or starred):
            self.groups.join(ANYTHING, *functions, *groups)
        results = [
            self.groups.note_call(f if f is not None else ANYTHING, GivenGroups(spread=groups)) for f in functions
        ]
        if name in _MAKING_NUMBERS or name in names.ERRORS:
            return None
        if name == "map" or (name == "iter" and calls):
            return self.groups.join(*results)
        if name in _COLLECTING or name == "filter":
            return self.groups.join(*groups)
        return self.groups.join(ANYTHING, *groups)


def _gives_no_function(name: str) -> bool:
    """Whether a method of a library's objects neither returns a function of the pass nor keeps one."""
    if name in _OF_CONTAINERS or name.startswith("_"):
        return False
    return name in _METHODS_WITHOUT or operators.is_method(name)

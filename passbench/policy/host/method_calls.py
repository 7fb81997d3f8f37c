"""The static policy on calls of methods: of the pass's classes, of containers, texts and tensors."""

import ast
import re
from collections import Counter, OrderedDict, deque

from passbench.policy import allowlists as names
from passbench.policy import operators
from passbench.policy.flow.class_parts import decorator_names, is_plain
from passbench.policy.host.bindings import FIELDS
from passbench.policy.host.classes import MAKING
from passbench.policy.host.given import Keywords
from passbench.policy.host.items.mixed_values import MixedValues
from passbench.policy.host.named_values import SHARED_ADVICE
from passbench.policy.host.operator_calls import OperatorCall
from passbench.policy.library_members import fields_of_tensors_too, is_usable
from passbench.policy.nodes import names_by_place, quoted
from passbench.policy.scopes import Scope, ValueKind, joined
from passbench.policy.suggestions import advice_on
from storage.graph import targets

_KEYED = frozenset("get setdefault pop insert index count move_to_end".split())
_WRITTEN_OTHERWISE = {
    "__eq__": "x == y", "__hash__": "no hash: let the instance be a key", "__repr__": "repr(x)", "__str__": "str(x)",
    "__len__": "len(x)", "__bool__": "bool(x)", "__getitem__": "x[key]", "__contains__": "key in x",
}  # fmt: skip
_WITHOUT_ARGUMENTS = frozenset("items keys values copy clear reverse popitem".split())
_TAKING_NUMBERS = frozenset("index move_to_end".split())
"""Methods that are given numbers beside a key: where to begin and to end, and at which end."""
_OF_ONE_ITEM = frozenset("get setdefault pop".split())
_COMPARING = frozenset("index count".split())
_OF_CONTAINERS = {n for kind in (set, Counter, deque, OrderedDict) for n in dir(kind)} & targets.methods()
"""Methods of containers that tensors have too: of what is no tensor they are the container's, such as `set.add`."""


class MethodCalls(MixedValues):
    """Follows kinds through methods, and refuses those that are on no list."""

    def _is_error(self, node: ast.expr | None, scope: Scope) -> bool:
        """Whether an expression names an error; see `passbench.policy.host.statements`."""
        raise NotImplementedError

    def _call_of_class(self, node: ast.Call, own: ast.ClassDef, name: str, scope: Scope) -> ValueKind | None:
        """`NAME.method(…)` of a class of the pass: the method is known. None if neither the class nor a base
        has one of that name.

        `apply` of a `torch.autograd.Function` is its `forward`.
        """
        if name == "__init__":
            return self._make_anew(node, own, scope)
        functional = any(scope.module.dotted(base) == names.FUNCTION for base in own.bases)
        found = self.methods_of(own, name)
        context = functional and name == "apply" and not found
        if context:
            found = self.facts(own).methods.get("forward", ())
        if not found or (name in self.fields and name not in self.methods):
            return None
        positional, keywords = self._arguments(node, scope)
        results = [ValueKind.SCALAR]
        for method in found:
            first = context or "classmethod" in decorator_names(method)
            given = [ValueKind.SCALAR, *positional] if first else positional  # the context, or the class
            if is_plain(method) and not context and name not in MAKING:
                self.handed_on.add(self.classes_of_methods[method])
            single = self.single_arguments(node, scope, len(given) - len(positional))
            results.append(self._pass_starred(node, method, given, keywords, single))
            self._note_sequences(method, node, scope, len(given) - len(positional))
        return joined(results)

    def _make_anew(self, node: ast.Call, own: ast.ClassDef, scope: Scope) -> ValueKind:
        """`BASE.__init__(self, …)`, which a class that derives from it calls: what makes instances of the base gets
        the arguments behind the first."""
        positional, keywords = self._arguments(node, scope)
        facts = self.facts(own)
        if facts.initial is not None:
            self._pass_starred(node, facts.initial, positional, keywords)
        if facts.by_fields:
            rest = ast.copy_location(ast.Call(node.func, node.args[1:], node.keywords), node)
            self.fill_fields(rest, own, positional[1:], keywords, scope)
        return ValueKind.SCALAR

    def fill_fields(
        self, node: ast.Call, own: ast.ClassDef, positional: list[ValueKind], keywords: Keywords, scope: Scope
    ) -> ValueKind:
        """The fields of an instance are what it is made with. Which argument is which field is not followed."""
        facts = self.facts(own)
        if facts.is_enumeration and any(kind.holds_tensors for kind in (*positional, *keywords.values())):
            self.read("a member of an enumeration is looked up by a value", scope, node)
        positional, stars = self._expanded(node, positional)
        spread = [*(positional[n].item() for n in stars), keywords.get(None, ValueKind.SCALAR).item()]
        given = joined((*positional, *spread))
        by_place = [] if stars else zip(facts.fields, node.args, strict=False)
        for name, value in (*by_place, *((k.arg, k.value) for k in node.keywords if k.arg in facts.fields)):
            if self.is_sequence(value, scope):
                self.note_sequence(FIELDS, name)
        single = self.single_arguments(node, scope)
        by_position = not stars and None not in keywords and single.issuperset(range(len(node.args)))
        for number, name in enumerate(facts.fields):
            if number < len(positional) or name in keywords or None in keywords or stars:
                self.shared.add((FIELDS, name))
            alone = by_position and (name not in keywords or name in single)
            self.kinds.join(FIELDS, name, joined((given, keywords.get(name, ValueKind.SCALAR))), single=alone)
        by_key = keywords.values() if facts.compares else ()
        made = self.holder([given, *by_key])  # it can be unpacked, compared, or be a key: by its fields
        if self.methods_of(own, "__post_init__"):
            made = self.holder([made, *(self.kinds.get(FIELDS, name) for name in facts.fields)])
        home = self.scopes[self.class_homes[own].name]
        addresses = any(self.kind(value, home) is ValueKind.ADDRESS for value in facts.defaults)
        return max(made, ValueKind.ADDRESS) if addresses or not facts.has_text else made

    def make_member(self, own: ast.ClassDef, value: ast.expr, kind: ValueKind, scope: Scope) -> None:
        """A member of an enumeration is made by its `__init__`, if it or a data class that it derives from has one: of
        its value, or of a tuple's items."""
        facts = self.facts(own)
        initial = facts.initial
        for name in facts.fields if facts.by_fields else ():
            self.kinds.join(FIELDS, name, kind)
        if initial is None:
            return
        order = names_by_place(initial)[1:]
        given = value.elts if isinstance(value, ast.Tuple) else [value] * max(1, len(order))
        self.pass_arguments(initial, [ValueKind.SCALAR, *(max(kind.item(), self.kind(v, scope)) for v in given)], {})
        for name, one in zip(order, given, strict=False):
            if self.is_sequence(one, scope):
                self.note_sequence(initial, name)

    def replace_fields(self, keywords: Keywords) -> None:
        """Let fields be what a copy of an instance is given for them: of any class, where `**` hands it in."""
        spread = keywords.get(None, ValueKind.SCALAR).item()
        unnamed = [name for own in self.class_homes for name in self.facts(own).fields] if None in keywords else []
        self.steps.take(len(unnamed))
        for name in {*keywords, *unnamed} - {None}:
            self._share(FIELDS, name)
            self.kinds.join(FIELDS, name, joined((keywords.get(name, ValueKind.SCALAR), spread)))

    @staticmethod
    def _makes_self(given: list[ast.expr], scope: Scope) -> bool:
        """Whether the first of these arguments is the new instance in `__init__` or `__post_init__`."""
        owner = scope.find(given[0].id) if given and isinstance(given[0], ast.Name) else None
        return owner is not None and owner.self_name == given[0].id and owner.node.name in MAKING

    def _call_method(self, node: ast.Call, method: ast.Attribute, scope: Scope) -> ValueKind:
        name = method.attr
        own = self.own_class(method.value, scope)
        made = name in MAKING and not self._makes_self(node.args[:1], scope)
        if made:
            message = (
                f"{name} is called by Python; write CLASS(…), and {name}(self, …) of another class in {name} alone"
            )
            self.find("private_name", scope.module, node, message)
        found = self._call_of_class(node, own, name, scope) if own is not None and not made else None
        if found is not None:
            return found
        base = self.base_kind(method, scope, called=True)
        if name == "sort" and not (name in self.methods or name in self.shared_names or base.is_tensor):
            node = self._without_key(node, ".sort()", [base.item()], scope)
        positional, keywords = self._arguments(node, scope)
        if name in _WRITTEN_OTHERWISE:  # a tensor has these, too
            message = f"Python calls {name}; write {_WRITTEN_OTHERWISE[name]}"
            self.find("private_name", scope.module, node, message)
            return ValueKind.TENSOR
        of_instance = self.is_of_instance(method, scope)
        is_method = name in self.methods or bool(self.shared_names.get(name))
        of_others = is_usable(name) and (is_method or name not in fields_of_tensors_too())
        of_pass = name in self.methods or of_instance or (is_method and of_others)
        may_hold = self.flow.held(self.flow.called.get(node)) != set()
        if not of_pass:  # a field may hold a function
            field = (name in self.shared_names and of_others) or self.is_field(method, base, scope)
            of_pass = field and (may_hold or not of_others) and (not base.is_tensor or name in self.shared_names)
        if not of_pass:
            found = self._call_of_library(node, method, base, (positional, keywords), scope)
            if name not in self.fields or node not in self.flow.called or not may_hold:
                return found
            return joined((found, self.call_unnamed(node, positional, keywords, scope)))  # of an instance in a list
        found = self._call_own(node, name, positional, keywords, scope)
        known = self.class_of(method.value, scope) if of_others and not of_instance else None
        if of_instance or not of_others or (known is not None and known not in self.inheriting):
            return found
        return joined((found, self._call_of_library(node, method, base, (positional, keywords), scope)))

    def _call_of_library(
        self,
        node: ast.Call,
        method: ast.Attribute,
        base: ValueKind,
        arguments: tuple[list[ValueKind], Keywords],
        scope: Scope,
    ) -> ValueKind:
        """A method of a tensor, a container, a text or another object that the pass has not written."""
        name, (positional, keywords) = method.attr, arguments
        given = max((*positional, *keywords.values()), default=ValueKind.SCALAR)
        if name in ("_asdict", "_replace") and self.has_named_tuples and not base.is_tensor and None not in keywords:
            self.replace_fields(keywords)
            return self.holder([base, given, ValueKind.HOLDER if self.kinds.holds_tensors(FIELDS) else base])
        of = [method.value, *node.args], [base, *positional]
        as_operator = OperatorCall(node, f".{name}()", f".{name}", *of, keywords, scope)
        if name in names.METADATA_METHODS:
            if any(kind.is_made for kind in positional):
                self.read(f".{name}() takes a number", scope, node)
            return ValueKind.SCALAR
        if name in names.VIEW_METHODS:
            self._check_numbers(as_operator)
            of_class = given.holds_tensors and not base.is_tensor  # `torch.Tensor` may be a variable: `T.detach(x)`
            return ValueKind.OWN if name.startswith("new_") or base.is_made else ValueKind.TENSOR if of_class else base
        if name in _COMPARING and base.is_tensor and given.holds_tensors and self.may_be_listed(method.value, scope):
            self.read(f"{name}() compares with each item", scope, node)
        if name in names.CONTAINER_METHODS and not base.is_tensor:
            if name == "setdefault" and node.args:
                self._note_key(method.value, node.args[0], positional[0], scope)
            keys = [*positional, *keywords.values()] if name in _TAKING_NUMBERS else positional[:1]
            if name in _KEYED and joined(keys).holds_tensors:
                self.read("a tensor is no key of a list or dict", scope, node)
            if name in _COMPARING and base.holds_tensors:
                self.read(f"{name}() compares with each item", scope, node)
            if name in _WITHOUT_ARGUMENTS and given.holds_tensors:  # `typing.MutableSequence.reverse(x)` writes into x
                self.find("in_place", scope.module, node, f"{name}() is called on a list or dict, and gets no tensors")
            for value in node.args[name in ("setdefault", "insert") :] if name in names.PUTTING_METHODS else ():
                self.note_item(method.value, value, scope)
            if name == "update":  # of an `OrderedDict`, which asks for items
                given = max(given, self.returned_by_members("items"))
            if name in names.PUTTING_METHODS:
                self.put_into(method.value, given, scope)
            kept = self._kept(method.value, scope) if name in _OF_ONE_ITEM else None
            if kept is None and name == "get":
                kept = self.launched_item(node, method.value, scope)
            if kept is not None:
                return joined((kept, *positional[1:]))
            return ValueKind.TENSOR if base.holds_tensors or given.holds_tensors else max(base, given).item()
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
                shown = ast.copy_location(ast.FormattedValue(argument, -1, None), argument)
                self.check_text(shown, self.kind(argument, scope), scope)
            if given.holds_tensors:
                self.read("the text of a tensor has its values", scope, node)
            return ValueKind.SCALAR
        if name in _OF_CONTAINERS and base <= ValueKind.HOLDER and given.holds_tensors:
            self.read("a tensor is no key: it stands for itself alone, not for its values", scope, node)
        if name == "sort" and not keywords.keys().isdisjoint(("key", None)):
            self._sort_by_any(node, scope)
        if name == "sort" and base is ValueKind.HOLDER:
            self.read("how tensors of a list are ordered follows from their values", scope, node)
        if operators.is_method(name) and not name.startswith("_"):
            if name == "type" and not node.args and not node.keywords:
                return ValueKind.SCALAR
            return self._library(as_operator)
        rule = "private_name" if name.startswith("_") else "tensor_method"
        advice = SHARED_ADVICE if name in self.shared_names else advice_on(name)
        advice = advice or "a pass calls methods of tensors, lists, dicts and texts, and of its own classes"
        self.find(rule, scope.module, node, f"method {name}() is not allowed in host code; {advice}")
        return ValueKind.SCALAR  # one finding is enough

    def enter(self, node: ast.FunctionDef | ast.Lambda, scope: Scope, kind: ValueKind) -> None:
        """As `Given` does; a parameter `*args` is a tuple."""
        super().enter(node, scope, kind)
        if node.args.vararg is not None:
            self.note_sequence(node, node.args.vararg.arg)

    def advice_on_member(self, node: ast.Attribute, scope: Scope) -> str:
        """What to write instead of a member that a value does not have, or that is on no list."""
        if self.host_function(node.value, scope) is not None:
            return f"keep {node.attr} in a variable or a dict of the module"
        return "use shape, stride(), dtype and the like"

    def check_text(self, node: ast.expr, kind: ValueKind, scope: Scope) -> None:
        """As `NamedValues` does; what is written by `str`, and not by `repr`, has the text that its `__str__` gives."""
        if isinstance(node, ast.FormattedValue):
            own = self.class_of(node.value, scope)
            if node.conversion in (-1, ord("s")) and own is not None and self.methods_of(own, "__str__"):
                return
            node = node.value
        super().check_text(node, kind, scope)

    def _without_key(self, node: ast.Call, what: str, items: list[ValueKind], scope: Scope) -> ast.Call:
        """`LIST.sort(key=f)`, or `bisect(places, n, key=f)`, without its key, which is called with the items."""
        keys = [k for k in node.keywords if k.arg == "key"]
        for key in keys:
            self.order_by(key.value, items, what, scope)
        return ast.copy_location(ast.Call(node.func, node.args, [k for k in node.keywords if k not in keys]), node)

    def _sort_by_any(self, node: ast.Call, scope: Scope) -> None:
        """`X.sort(**options)`, where the key is whatever these hold, and `X.sort(key=f)` of what may be no list."""
        self.let_libraries_call()
        for key in (k.value for k in node.keywords if k.arg in ("key", None)):
            if self.returned_by(key, scope).holds_tensors:
                self.read(f".sort() reads what {quoted(key)} returns, which may be a tensor", scope, node)

    def _call_own(
        self, node: ast.Call, name: str, positional: list[ValueKind], keywords: Keywords, scope: Scope
    ) -> ValueKind:
        """A method of a class of the pass, or a function that a field holds."""
        if name not in self.methods and not self.shared_names.get(name):
            return self.call_unnamed(node, positional, keywords, scope)
        found = self._give(node, name, positional, keywords, scope)
        if name in self.stored_names:  # a field of this name may hold a function, a property may return one
            found = joined((found, self.call_unnamed(node, positional, keywords, scope)))
        return found


_PLAIN_FIELD = re.compile(r"[^{}]|\{\{|\}\}|\{\w*(:[^{}]*)?\}")


def _is_plain_format(node: ast.expr) -> bool:
    """Whether an expression is a format, written out, whose fields are values and none of their attributes."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
        return False
    return re.fullmatch(f"({_PLAIN_FIELD.pattern})*", node.value, re.DOTALL) is not None

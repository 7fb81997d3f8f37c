"""The static policy on what is indexed, and by what.

Python makes a number of a tensor that a list, a tuple or a text is indexed by, and so reads its value. So a tensor
indexes only what is surely single: a tensor, a number, or anything else that Python does not index by a number. Of a
variable, a parameter and a function's result `Kinds` keeps whether all that it is given is that. What the policy does
not follow is not single.
"""

import ast
from collections.abc import Callable

from passbench.policy import allowlists as names
from passbench.policy import operators
from passbench.policy.host.bindings import FIELDS
from passbench.policy.host.subscripts.launch_items import LaunchItems
from passbench.policy.library_members import is_of_plain_objects
from passbench.policy.nodes import quoted
from passbench.policy.scopes import RETURN, Scope, ValueKind, built_in_called

_NUMBERS = frozenset("int float bool len abs round".split())
"""Built-ins that return no list, tuple or text."""
_PAIRS = frozenset(("math.frexp", "math.modf"))
_OF_RESULTS = frozenset(("values", "indices"))
"""Attributes of what `torch.max(x, 0)` returns, which is a tuple."""


class Indices(LaunchItems):
    """Tells single values from others, and refuses a tensor as the index of what may be another."""

    methods: dict[str, list[ast.FunctionDef]]
    gets_items: bool
    """Whether a library may be told to index something by anything, or to ask what it holds: the pass names
    `operator.getitem` or such."""

    def index(self, node: ast.Subscript, scope: Scope) -> tuple[ValueKind, ValueKind]:
        """Check a subscript; the kinds of what is indexed and of the index."""
        kind = self.kind(node.value, scope)
        slices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        kinds = [self.kind(part, scope) for part in slices]
        by, alone = self.holder(kinds), not isinstance(node.slice, ast.Tuple | ast.Slice)
        self.note_used("__getitem__", by if isinstance(node.slice, ast.Tuple) else kinds[0])
        if by.holds_tensors and not kind.is_tensor and kind not in (ValueKind.EITHER, ValueKind.COMPUTED):
            self.read("a tensor is no key of a list or dict", scope, node)
        elif alone and kinds[0].is_tensor and not self.is_single(node.value, scope):  # no list has several indices
            message = f"{quoted(node.value)} may be a list or a tuple, of which a tensor is no index; of a tensor"
            self.read(f"{message} write {quoted(node.value)}[{quoted(node.slice)}, ...]", scope, node)
        for part, found in zip(slices, kinds, strict=True):
            if isinstance(part, ast.Slice) and found.is_tensor:
                self.read("the bounds of a slice are numbers", scope, node)
            elif isinstance(part, ast.Compare) and found.is_tensor:
                self.read("how many elements a mask picks follows from values; write torch.where(…)", scope, node)
        return kind, by

    def note_used(self, name: str, kind: ValueKind) -> None:
        """Something is indexed by a value of this kind, or asked whether it holds one: it may be an instance with a
        `__getitem__`, or a `__contains__`."""
        if name in self.methods:
            self.give_methods(name, [kind], {None: ValueKind.TENSOR} if self.gets_items else {})

    def is_single(self, node: ast.expr | None, scope: Scope) -> bool:
        """Whether the value of an expression is surely single; without one it is None."""
        self.steps.take()
        match node:
            case None:
                return True
            case ast.Constant():
                return not isinstance(node.value, str | bytes)
            case ast.Name():
                return self._is_single_variable(node.id, scope)
            case ast.Attribute():
                if node.attr in _OF_RESULTS and self.hands_out_single(node.value, scope):
                    return True
                if self._is_single_field(node, scope):
                    return True
                return node.attr in names.VIEW_ATTRIBUTES and self.is_single(node.value, scope)
            case ast.Call():
                return self._returns_single(node, scope)
            case ast.Subscript():
                item = not isinstance(node.slice, ast.Slice) and self._items_are_single(node.value, scope)
                return item or self.is_single(node.value, scope)
            case ast.BinOp(op=ast.Add()):  # with a list, a tuple or a text Python adds its like alone
                return self.is_single(node.left, scope) or self.is_single(node.right, scope)
            case ast.BinOp(op=ast.Mult() | ast.BitAnd() | ast.BitOr() | ast.BitXor()):
                return self.is_single(node.left, scope) and self.is_single(node.right, scope)
            case ast.BinOp(op=ast.Mod()):
                return self.is_single(node.left, scope)
            case ast.BinOp() | ast.UnaryOp() | ast.Compare():
                return True
            case ast.BoolOp():
                return all(self.is_single(value, scope) for value in node.values)
            case ast.IfExp():
                return self.is_single(node.body, scope) and self.is_single(node.orelse, scope)
            case ast.NamedExpr():
                return self.is_single(node.value, scope)
        return False

    def hands_out_single(self, node: ast.expr, scope: Scope) -> bool:
        """Whether each item of an expression's value is surely single. So are those of what is single itself: a
        tensor's are tensors."""
        return self._items_are_single(node, scope) or self.is_single(node, scope)

    def _items_are_single(self, node: ast.expr, scope: Scope) -> bool:
        """Whether an expression itself shows that all items of its value are single."""
        match node:
            case ast.List() | ast.Tuple():
                return all(
                    self.hands_out_single(e.value, scope) if isinstance(e, ast.Starred) else self.is_single(e, scope)
                    for e in node.elts
                )
            case ast.ListComp() | ast.GeneratorExp():
                inner = self._opened.get(node)
                return inner is not None and self.is_single(node.elt, inner)
            case ast.Attribute(attr="shape"):
                return self.is_single(node.value, scope)
            case ast.Call(func=ast.Attribute(attr="size" | "stride")):
                return self.is_single(node.func.value, scope)
            case ast.Call():
                return built_in_called(node, scope) == "range" or self._makes(node, operators.makes_several, scope)
        return False

    def binds_single(self, target: ast.expr, value: ast.expr, scope: Scope) -> bool:
        """Whether an assignment of a value gives a target what is single, or each of its names, if it has several."""
        several = isinstance(target, ast.Tuple | ast.List)
        return self.hands_out_single(value, scope) if several else self.is_single(value, scope)

    def single_arguments(self, node: ast.Call, scope: Scope, before: int = 0) -> frozenset[int | str]:
        """The numbers and names of the arguments of a call that are single, counted from what stands `before` them.
        None has a number where a `*` hands in some."""
        named = {k.arg for k in node.keywords if k.arg is not None and self.is_single(k.value, scope)}
        if any(isinstance(a, ast.Starred) for a in node.args):
            return frozenset(named)
        return frozenset(named | {n for n, a in enumerate(node.args, before) if self.is_single(a, scope)})

    def _is_single_variable(self, name: str, scope: Scope) -> bool:
        owner = scope.find(name)
        if owner is None or isinstance(owner.node, ast.ClassDef) or name == owner.self_name:
            return False
        bound = (owner.node, name) in self.kinds or name in owner.assigned  # no function, class or error
        return bound and self.kinds.is_single(owner.node, name)

    def _is_single_field(self, node: ast.Attribute, scope: Scope) -> bool:
        """Whether an expression is a field of an instance of the pass, and all fields of its name are single."""
        if node.attr not in self.fields or node.attr in self.methods or is_of_plain_objects(node.attr):
            return False
        own = self.class_of(node.value, scope)
        given = own is not None and own not in self.inheriting and (FIELDS, node.attr) in self.kinds
        return given and self.kinds.is_single(FIELDS, node.attr)

    def _returns_single(self, node: ast.Call, scope: Scope) -> bool:
        function = self.host_function(node.func, scope)
        if function is not None:
            return self.kinds.is_single(function, RETURN)
        dotted = scope.module.dotted(node.func)
        if dotted is not None:
            plain = dotted in names.ALLOCATORS or dotted in names.MATH - _PAIRS
            return plain or self._makes(node, operators.makes_one, scope)
        if isinstance(node.func, ast.Attribute) and node.func.attr in names.METADATA_METHODS:
            number = node.func.attr not in ("size", "stride") or bool(node.args or node.keywords)
            return number and self.is_single(node.func.value, scope)
        name, alone = built_in_called(node, scope), len(node.args) == 1 and not node.keywords
        if name in ("min", "max"):
            return len(node.args) > 1 and not node.keywords and all(self.is_single(a, scope) for a in node.args)
        return name in _NUMBERS or (name == "sum" and alone) or self._makes(node, operators.makes_one, scope)

    def _makes(self, node: ast.Call, makes: Callable[[str], bool], scope: Scope) -> bool:
        """Whether a call is of an operator, or a method of what is single, that makes such results. A function that is
        written in Python may call a method of its first argument, which is a tensor then."""
        dotted = scope.module.dotted(node.func)
        if dotted is not None:
            stored = operators.stored_name(dotted)
            if stored is None or not makes(stored):
                return False
            return not operators.is_in_python(stored) or (bool(node.args) and self.is_single(node.args[0], scope))
        method = node.func if isinstance(node.func, ast.Attribute) else None
        known = method is not None and operators.is_method(method.attr) and makes(f".{method.attr}")
        return known and self.is_single(method.value, scope)

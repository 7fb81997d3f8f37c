"""The static policy on values that are a tensor in one call and a list, a tuple or a text in another.

Their kind is that of a tensor, so that it does not tell. What counts is what calls, loops and displays show: a list
that is given there. Where it may meet a tensor, Python reads the tensor, to repeat the list or to compare its items. A
function that asks for a type, or decides by what it is given, may be honest. So may be a variable that is given a
tensor later. Of these nothing is said here.
"""

import ast
from collections.abc import Callable, Iterator, Sequence

from passbench.policy import operators
from passbench.policy.host.bindings import METHODS, VALUES
from passbench.policy.host.given import Keywords
from passbench.policy.host.items.known_items import KnownItems
from passbench.policy.host.operator_calls import OperatorCall
from passbench.policy.item_parts import constant_index
from passbench.policy.modules import Module
from passbench.policy.nodes import names_by_place, walk
from passbench.policy.scopes import Scope, ValueKind, owned_values
from passbench.policy.steps import Steps

_OF_ONE_ITEM = frozenset("get setdefault pop".split())
_ASKING = frozenset("isinstance type hasattr torch.is_tensor".split())
_TENSORS = tuple(kind for kind in ValueKind if kind.is_tensor)
_MADE = "{}[made]"
"""The name under which `Kinds` keeps the tensors of the pass's own that are put into a variable's list."""
_DECIDING = ast.If | ast.IfExp | ast.While
Function = ast.FunctionDef | ast.Lambda


class MixedValues(KnownItems):
    """Refuses what reads a tensor by a value that may be a list beside a tensor."""

    def __init__(self, modules: dict[str, Module], steps: Steps) -> None:
        super().__init__(modules, steps)
        self._asking = False
        self._tensors: dict[tuple[object, str], dict[ast.expr | None, Scope]] = {}  # variable → what makes it a tensor
        self._taken: set[tuple[object, str]] = set()  # variables that loops bind
        self._asked_names: dict[object, frozenset[str]] = {}  # function → names that it asks for types or decides by

    def check_repeated(
        self, node: ast.AST, sides: Sequence[ast.expr], kinds: Sequence[ValueKind], scope: Scope
    ) -> bool:
        """As `Expressions` does; of what may be a list or a text beside a tensor, too."""
        repeated = super().check_repeated(node, sides, kinds, scope)
        pairs = (sides, sides[::-1]) if min(kinds).is_tensor else ()
        if any(self.may_be_listed(one, scope) and self._is_shown(other, scope) for one, other in pairs):
            self.read("how often a list or a text is repeated is a number; one call gives it here", scope, node)
        return repeated

    def operate(self, node: ast.AST, sides: tuple[ValueKind, ...], op: ast.AST, scope: Scope) -> ValueKind:
        """As `Expressions` does; `+=` puts items into a list."""
        if isinstance(node, ast.AugAssign) and isinstance(op, ast.Add) and sides[1] is ValueKind.HOLDER:
            self.note_item(node.target, node.value, scope)
        return super().operate(node, sides, op, scope)

    def compares_items(self, left: ast.expr, right: ast.expr, scope: Scope) -> bool:
        """Whether a comparison of what may be tensors may be one of two lists, of which one holds tensors."""
        pairs = ((left, right), (right, left))
        return any(self._may_hold(one, scope) and self.may_be_listed(other, scope) for one, other in pairs)

    def may_be_listed(self, node: ast.expr, scope: Scope) -> bool:
        """Whether a value may be a list, a tuple or a text, whatever its kind is. It is asked for findings alone."""
        return self._is_any_part(node, scope, self._is_listed)

    def _may_hold(self, node: ast.expr, scope: Scope) -> bool:
        """Whether a value may be a list, a tuple or a dict that holds tensors, whatever its kind is."""
        return self._is_any_part(node, scope, self._holds)

    def _is_any_part(self, node: ast.expr, scope: Scope, asked: Callable[[ast.expr, Scope], bool]) -> bool:
        if self.report is None:
            return False
        return self._asked(lambda: any(asked(part, home) for part, home in self._parts(node, scope)))

    def _asked(self, question: Callable[[], bool]) -> bool:
        """The answer to a question, False within another one: an item may be made of the list that it lies in."""
        if self._asking:
            return False
        self._asking = True
        answer = question()
        self._asking = False
        return answer

    def _is_listed(self, node: ast.expr, scope: Scope) -> bool:
        if not isinstance(node, ast.Name):
            return self.is_sequence(node, scope) or self._holds(node, scope)
        place = self._place(node, scope)
        listed = place in self.sequences and not self._is_one_of_rest(*place)
        return (listed or self._was(node, scope, ValueKind.HOLDER)) and not self._is_told_apart(node.id, scope)

    def _is_one_of_rest(self, function: object, name: str) -> bool:
        """Whether a function that is a value counts as given a list for a call `function(*rest)` alone, where it is not
        known what `rest` holds."""
        if function not in self.escaped or ((METHODS, VALUES), "**") not in self.sequences:
            return False
        order = _order(function)
        places = (name, order.index(name)) if name in order else (name,)
        return not any(((METHODS, VALUES), place) in self.sequences for place in places)

    def _holds(self, node: ast.expr, scope: Scope) -> bool:
        if not isinstance(node, ast.Name):
            return self.kind(node, scope) is ValueKind.HOLDER or self._makes_list(node, scope)
        return self._was(node, scope, ValueKind.HOLDER) and not self._is_told_apart(node.id, scope)

    def _is_shown(self, node: ast.expr, scope: Scope) -> bool:
        """Whether a call shows a tensor for what has the kind of one: what a function gets that a library may call is
        not known."""
        owner = scope.find(node.id) if isinstance(node, ast.Name) else None
        return owner is None or owner.node not in self.escaped or self._was(node, scope, *_TENSORS)

    def _parts(self, node: ast.expr, scope: Scope) -> Iterator[tuple[ast.expr, Scope]]:
        """What an expression picks one of, and where that is written: of an item, what the display has there. Where it
        is not known which item it is, all must be displays. What other calls and fields give is not known."""
        waiting, met = [(node, scope)], set()
        while waiting:
            part, home = waiting.pop()
            self.steps.take()
            if part in met:
                continue
            met.add(part)
            match part:
                case ast.IfExp():
                    waiting += [(part.body, home), (part.orelse, home)]
                case ast.NamedExpr():
                    waiting.append((part.value, home))
                case ast.Subscript(slice=ast.Slice()) | ast.Attribute() | ast.BoolOp() | ast.BinOp():
                    continue
                case ast.Subscript():
                    waiting += self._items(part.value, part.slice, home)
                case ast.Call(func=ast.Attribute(value, attr), args=args) if attr in _OF_ONE_ITEM:
                    waiting += self._items(value, args[0] if args else None, home, keeps=attr != "pop")
                    waiting += [(default, home) for default in args[1:]]
                case ast.Call() if self.own_class(part.func, home) is None and not self._makes_list(part, home):
                    continue
                case ast.Name() if len(values := self._displays(part, home)) == 1 and isinstance(
                    values[0][0], ast.Call
                ):
                    waiting += values
                    yield part, home
                case _:
                    yield part, home

    def _makes_list(self, node: ast.expr, scope: Scope) -> bool:
        """Whether an expression is a call such as `x.chunk(2)`."""
        return isinstance(node, ast.Call) and self._makes(node, operators.makes_list, scope)

    def _items(
        self, of: ast.expr, index: ast.expr | None, scope: Scope, *, keeps: bool = True
    ) -> list[tuple[ast.expr, Scope]]:
        """The items of a container that may be at an index, and where they are written. Without `keeps` the others have
        moved up, so that it is not known of a number."""
        by_name = isinstance(index, ast.Constant) and isinstance(index.value, str)
        known = by_name or (keeps and index is not None and constant_index(index) is not None)
        asked = index if known else ast.Name("", ast.Load())
        items = self._items_written(ast.copy_location(ast.Subscript(of, asked, ast.Load()), of), scope)
        given = self._displays(of, scope) if isinstance(of, ast.Name) else [(of, scope)]
        if known and len(given) == 1:
            return items
        written = all(isinstance(value, ast.List | ast.Tuple | ast.Dict) for value, _ in given)
        lists = all(isinstance(item, ast.List | ast.Tuple | ast.Dict | ast.ListComp) for item, _ in items)
        return items if written and lists else []

    @staticmethod
    def _place(node: ast.Name, scope: Scope) -> tuple[object, str]:
        owner = scope.find(node.id)
        return (owner.node if owner is not None else None, node.id)

    def _was(self, node: ast.Name, scope: Scope, *kinds: ValueKind) -> bool:
        place = self._place(node, scope)
        return any(self.kinds.was(kind, *place) for kind in kinds)

    def _assign_name(
        self, target: ast.Name, kind: ValueKind, scope: Scope, value: ast.expr | None, single: bool
    ) -> None:
        """As `Bindings` does; what makes a variable a tensor is noted, None where that is not written out."""
        super()._assign_name(target, kind, scope, value, single)
        place = self._place(target, scope)
        if kind.is_tensor and not isinstance(value, ast.Constant):
            self._tensors.setdefault(place, {})[value] = scope

    def _is_told_apart(self, name: str, scope: Scope) -> bool:
        """Whether a variable's function may tell which of its values it is: it asks for its type, decides something by
        what it is given, or gives the variable a tensor later. A method may have arguments that are given to another
        class's."""
        owner = scope.find(name)
        if owner is None or isinstance(owner.node, ast.ClassDef):
            return True
        own = owner.node
        if own in self.classes_of_methods and len(self.methods.get(own.name, ())) > 1:
            return True
        for value, home in self._tensors.get((own, name), {}).items():
            if not ((own, name) in self._taken if value is None else self.is_sequence(value, home)):
                return True
        if own not in self._asked_names:
            nodes = walk(own)
            self.steps.take(len(nodes))
            tests = (n.test if isinstance(n, _DECIDING) else n for n in nodes if _asks(n, owner.module))
            self._asked_names[own] = frozenset(n.id for t in tests for n in walk(t) if isinstance(n, ast.Name))
        asked = self._asked_names[own]
        return name in asked or (name in _order(own) and not asked.isdisjoint(_order(own)))

    def note_taken(self, target: ast.expr, iterable: ast.expr, scope: Scope, inner: Scope) -> None:
        """As `Given` does; a loop over lists that hold tensors hands out these."""
        super().note_taken(target, iterable, scope, inner)
        owner = inner.find(target.id) if isinstance(target, ast.Name) else None
        if owner is None:
            return
        if self._hands_out_holders(iterable, scope):
            self.kinds.join(owner.node, target.id, ValueKind.HOLDER)
        if target.id not in _order(owner.node) and not self._becomes_plain(iterable, scope):
            self._taken.add((owner.node, target.id))

    def _becomes_plain(self, iterable: ast.expr, scope: Scope) -> bool:
        """Whether a variable holds lists at one time, and something else at another: `parts = [a + b for a, b in
        parts]`."""
        displays = self._displays(iterable, scope) if isinstance(iterable, ast.Name) else []
        return len(displays) > 1 and not all(self.hands_out_sequences(value, home) for value, home in displays)

    def _hands_out_holders(self, iterable: ast.expr, scope: Scope) -> bool:
        """Whether an iterable that is written out has lists with tensors among its items."""
        displays = [(d, home) for d, home in self._displays(iterable, scope) if isinstance(d, ast.List | ast.Tuple)]
        items = ((item, home) for display, home in displays for item in display.elts)
        return self._asked(lambda: any(self.kind(item, home) is ValueKind.HOLDER for item, home in items))

    def note_reduced(self, called: ast.expr, items: ast.expr, initial: ast.expr | None, scope: Scope) -> None:
        """Note what `reduce` and `accumulate` call a function with: what it has returned before, which is the initial
        value or an item, and the next item."""
        plain = self._becomes_plain(items, scope)
        later = not plain and self.hands_out_sequences(items, scope)
        held = not plain and self._hands_out_holders(items, scope)
        first, kept = later, held
        kinds = [self.kind(items, scope).item()] * 2
        if initial is not None:
            kinds[0] = self.kind(initial, scope)
            first, kept = self.is_sequence(initial, scope), kinds[0] is ValueKind.HOLDER
        if scope.module.dotted(called) == "operator.mul" and (first or later) and max(kinds).holds_tensors:
            self.read("how often a list or a text is repeated is a number", scope, called)
        function = called if isinstance(called, ast.Lambda) else self.host_function(called, scope)
        for name, listed, holds, kind in zip(_order(function), (first, later), (kept, held), kinds, strict=False):
            self.kinds.join(function, name, kind)
            if listed:
                self.note_sequence(function, name)
            if holds:
                self.kinds.join(function, name, ValueKind.HOLDER)

    def _mapped(self, node: ast.Call, scope: Scope) -> ValueKind | None:
        """As `BuiltInCalls` does; a function gets lists where the items are."""
        called = node.args[0] if node.args else None
        function = called if isinstance(called, ast.Lambda) or called is None else self.host_function(called, scope)
        for name, items in zip(_order(function), node.args[1:], strict=False):
            if isinstance(items, ast.Starred):
                break
            if self.hands_out_sequences(items, scope) and not self._becomes_plain(items, scope):
                self.note_sequence(function, name)
        return super()._mapped(node, scope)

    def take_given(self, method: ast.FunctionDef, bound: bool) -> None:
        """As `Given` does; each kind that a parameter is given is kept."""
        super().take_given(method, bound)
        self._take_each(method, method.name, _order(method)[1 if bound else 0 :])

    def take_as_value(self, function: ast.FunctionDef) -> None:
        """The same for what is given to whatever function a variable, a field or an item holds."""
        super().take_as_value(function)
        self._take_each(function, VALUES, _order(function))

    def _take_each(self, function: ast.FunctionDef, given: str, order: list[str]) -> None:
        place = (METHODS, given)
        if (place, "**") in self.kinds:  # which argument is which is not known
            return
        for number, name in enumerate(order):
            for kind in ValueKind:
                if any(self.kinds.was(kind, place, one) for one in (number, name)):
                    self.kinds.join(function, name, kind, single=True)

    def note_item(self, container: ast.expr, value: ast.expr | None, scope: Scope) -> None:
        """As `Given` does; which lists get tensors of the pass's own is noted."""
        super().note_item(container, value, scope)
        if (
            isinstance(container, ast.Name)
            and value is not None
            and self._is_made(value, self.kind(value, scope), scope)
        ):
            place, name = self._place(container, scope)
            self.kinds.join(place, _MADE.format(name), ValueKind.OWN)

    def check_as_operator(self, node: ast.Call, positional: list[ValueKind], keywords: Keywords, scope: Scope) -> None:
        """As `Arguments` does; of a variable that holds an operator it is known which numbers that needs."""
        super().check_as_operator(node, positional, keywords, scope)
        owner = scope.find(node.func.id) if isinstance(node.func, ast.Name) else None
        for value in owned_values(owner.node, node.func.id) if owner is not None else ():
            stored = operators.stored_name(owner.module.dotted(value) or "")
            if stored is not None:
                self._check_numbers(OperatorCall(node, stored, stored, node.args, positional, keywords, scope))

    def _is_made(self, node: ast.expr, kind: ValueKind, scope: Scope) -> bool:
        """As `OperatorCalls` says; a list that such a tensor is put into, and a parameter that is given one beside
        another's, count as well."""
        made = super()._is_made(node, kind, scope)
        if made or not isinstance(node, ast.Name):
            return made
        place, name = self._place(node, scope)
        if kind is ValueKind.HOLDER:
            displays = (d for d in self._displays(node, scope) if not isinstance(d[0], ast.Name))
            put_in = self.kinds.get(place, _MADE.format(name)).is_made
            return put_in or any(self._is_made(value, kind, home) for value, home in displays)
        given = name in _order(place)
        made = kind.is_tensor and given and self._was(node, scope, ValueKind.OWN, ValueKind.OWN_OR_HELD)
        return made and not self._is_told_apart(name, scope)


def _asks(node: ast.AST, module: Module) -> bool:
    """Whether a node decides something, or asks for a type."""
    if isinstance(node, ast.Call):
        return (module.dotted(node.func) or getattr(node.func, "id", "")) in _ASKING
    return isinstance(node, _DECIDING)


def _order(function: object) -> list[str]:
    """The parameters of a function that it is given by their place; none of anything else."""
    if not isinstance(function, Function):
        return []
    return names_by_place(function)

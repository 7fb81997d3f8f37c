"""The static policy on expressions of host code: the kind of each, and findings on those that are not allowed."""

import ast
from collections.abc import Sequence

from passbench.policy import allowlists as names
from passbench.policy import item_parts
from passbench.policy.forms.context_managers import runs_at_the_end
from passbench.policy.forms.written_types import attributes_in_type, fault_of_type
from passbench.policy.host.bindings import HOOK
from passbench.policy.host.named_values import NamedValues
from passbench.policy.nodes import quoted, walk
from passbench.policy.scopes import COMPREHENSIONS, RETURN, Scope, ValueKind, joined, parameters

_TYPES_OF_ITEMS = frozenset("tuple list dict".split())
"""Built-in types that a type is made of: `Shape = tuple[int, ...]`."""
_BUILT_IN, _TYPE = "built-in", "type"


class Expressions(NamedValues):
    """Evaluates expressions to kinds; reports only once `report` is set, when the kinds are final."""

    def call(self, node: ast.Call, scope: Scope) -> ValueKind:
        """The kind of a call's result; see `passbench.policy.host.calls`."""
        raise NotImplementedError

    def kind(self, node: ast.expr, scope: Scope, *, hook: bool = False, bound: bool = False) -> ValueKind:
        """The kind of an expression. `hook`: a grid, or a hook of Triton; `bound`: it is assigned to a name."""
        self.steps.take()
        self.seen.add(node)
        match node:
            case ast.Constant():
                self.check_option(node.value, node, scope)
                return ValueKind.SCALAR
            case ast.Name():
                return self._name(node, scope, hook)
            case ast.Attribute():
                return self._attribute(node, scope, hook)
            case ast.Call():
                return self.call(node, scope)
            case ast.Subscript():
                return self._subscript(node, scope)
            case ast.Slice():
                parts = filter(None, (node.lower, node.upper, node.step))
                return max((self.kind(part, scope) for part in parts), default=ValueKind.SCALAR)
            case ast.BinOp():
                if isinstance(node.op, ast.BitOr) and self._type_parts(node, scope) is _BUILT_IN:
                    return self.type_value(node, scope)
                sides = self.kind(node.left, scope), self.kind(node.right, scope)
                return self.operate(node, sides, node.op, scope)
            case ast.UnaryOp():
                return self.operate(node, (self.kind(node.operand, scope),), node.op, scope)
            case ast.Compare():
                return self._compare(node, scope)
            case ast.BoolOp():
                found = [self.test(v, scope) for v in node.values[:-1]]
                return joined((*found, self.kind(node.values[-1], scope)))
            case ast.IfExp():
                self.test(node.test, scope)
                return joined((self.kind(node.body, scope, hook=hook), self.kind(node.orelse, scope, hook=hook)))
            case ast.Tuple() | ast.List():
                return self.holder([self.handed_kind(e, scope) for e in node.elts])
            case ast.Set():
                return self._keys([self.kind(e, scope) for e in node.elts], node, scope)
            case ast.Dict():
                keys = self._keys([self.kind(k, scope) for k in node.keys if k is not None], node, scope)
                return self.holder([keys, *(self.handed_kind(v, scope, hook=hook) for v in node.values)])
            case ast.Starred():
                self.scopes_of_stars[node] = scope
                return self.kind(node.value, scope)
            case ast.JoinedStr():
                for value in node.values:
                    self.kind(value, scope)
                return ValueKind.SCALAR
            case ast.FormattedValue():
                if (kind := self.kind(node.value, scope)).holds_tensors:
                    self.read("the text of a tensor has its values; name its shape or dtype", scope, node)
                self.check_text(node, kind, scope)
                if node.format_spec is not None:
                    self.kind(node.format_spec, scope)
                return ValueKind.SCALAR
            case ast.NamedExpr():
                kind = self.kind(node.value, scope)
                single = self.is_single(node.value, scope)
                self.assign(node.target, kind, scope.function, None, single=single)  # it may have another name, too
                owner = scope.find(node.target.id)
                if owner is not None and self.is_iterator(node.value, scope):
                    self.note_iterator(owner.node, node.target.id)
                loaded = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
                return joined((kind, self.kind(loaded, scope)))
            case ast.Lambda():
                if hook:
                    self.mark_hook(node)
                self._lambda(node, scope, bound=bound)
                return ValueKind.SCALAR if hook else ValueKind.ADDRESS
        if isinstance(node, COMPREHENSIONS):
            return self._comprehension(node, scope)
        yields = isinstance(node, ast.Yield | ast.YieldFrom)
        if yields and scope.node in self.homes:
            return self._yields(node, scope)
        advice = "; return a list, or write a generator expression" if yields else ""
        self.find("expression", scope.module, node, f"{type(node).__name__} is not allowed in host code{advice}")
        return ValueKind.TENSOR

    def _yields(self, node: ast.Yield | ast.YieldFrom, scope: Scope) -> ValueKind:
        """What a generator of the module hands out. It goes on later, where its arguments may be an earlier call's: it
        gets no tensors. Python ends it whenever it likes, between two calls too: nothing runs then."""
        value = ValueKind.SCALAR if node.value is None else self.handed_kind(node.value, scope)
        if node.value is not None and self.is_sequence(node.value, scope):
            self.note_sequence(scope.node, f"{RETURN}[:]")
        self.kinds.join(scope.node, RETURN, value if isinstance(node, ast.YieldFrom) else self.holder([value]))
        self.note_iterator(scope.node, RETURN)
        if scope.node in self.managers:  # it ends where its `with` does, its arguments are this call's
            return ValueKind.SCALAR
        if any(self.kinds.get(scope.node, p.arg) is not ValueKind.SCALAR for p in parameters(scope.node)):
            message = f"{scope.node.name} hands out one by one what it makes of its arguments; return a list"
            self.find("expression", scope.module, node, message)
        self.steps.take(len(walk(scope.node)))
        ending = (n for n in walk(scope.node) if isinstance(n, ast.With) or runs_at_the_end(n))
        if any(node in walk(block) for block in ending):
            message = "what a finally, an except of everything or a with does behind a yield may run between two"
            message += " calls; hand out what is there"
            self.find("expression", scope.module, node, message)
        if isinstance(node, ast.YieldFrom):  # what the other one returns in the end
            return joined((value, value.item()))
        return ValueKind.SCALAR

    def iterate(self, target: ast.expr, iterable: ast.expr, scope: Scope, inner: Scope | None = None) -> None:
        """Bind what a loop takes from an iterable, in the `inner` scope if it has one. `enumerate` and `zip` are seen
        through, and so are items whose parts are written out."""
        inner = inner or scope
        self.note_taken(target, iterable, scope, inner)
        call = iterable if isinstance(iterable, ast.Call) and not iterable.keywords else None
        name = call.func.id if call is not None and isinstance(call.func, ast.Name) else None
        if name not in ("enumerate", "zip") or scope.find(name) is not None or not isinstance(target, ast.Tuple):
            kind = self.kind(iterable, scope)
            parts = self._parts_of_items(iterable, scope) if isinstance(target, ast.Tuple) else None
            if parts is None or len(parts) != len(target.elts):
                item = self._item_of(iterable, kind, scope) if isinstance(target, ast.Name) else kind.item()
                return self.assign(target, item, inner, None, single=self.hands_out_single(iterable, scope))
            for element, part in zip(target.elts, parts, strict=True):
                self.assign(element, part.item() if isinstance(element, ast.Starred) else part, inner, None)
            return
        self.seen.add(call)
        stars = [isinstance(a, ast.Starred) for a in call.args]
        if name == "enumerate" and stars == [False] and len(target.elts) == 2:
            self.assign(target.elts[0], ValueKind.SCALAR, inner, None, single=True)
            self.iterate(target.elts[1], call.args[0], scope, inner)
            return
        if name == "enumerate":
            self.kind(call, scope)
        items = [self._item_of(a, self.kind(a, scope), scope) for a in call.args]
        parts = items if name == "zip" else [ValueKind.SCALAR, *items[:1]]
        plain = not any(stars) and len(parts) == len(target.elts)
        for number, element in enumerate(target.elts):
            self.assign(element, parts[number] if plain else joined(items), inner, None)

    def _item_of(self, iterable: ast.expr, kind: ValueKind, scope: Scope) -> ValueKind:
        """The kind of what an iterable of this kind hands out: a dict hands out its keys."""
        owner = scope.find(iterable.id) if isinstance(iterable, ast.Name) else None
        if kind is ValueKind.HOLDER and (made := self.made_items(iterable, scope)) is not None:
            return made
        if owner is None or not kind.holds_tensors or not isinstance(owner.node, ast.FunctionDef):
            return kind.item()
        self.steps.take(len(walk(owner.node)))
        dicts = item_parts.dicts_of_variable(owner.node, iterable.id)
        constant = bool(dicts) and all(isinstance(one, ast.Dict) for one in dicts)
        return ValueKind.SCALAR if constant else kind.item()

    def made_items(self, node: ast.expr, scope: Scope) -> ValueKind | None:
        """OWN where all items of a list, as in `[torch.empty(n) for _ in range(2)]`, are tensors that the pass has just
        made, and it stays as it is written out; None for other expressions."""
        home: Scope | None = scope
        if isinstance(node, ast.Name):
            home = scope.find(node.id)
            if home is None or not isinstance(home.node, ast.FunctionDef):
                return None
            if home.node not in self._unchanged:
                self.steps.take(len(walk(home.node)))
                self._unchanged[home.node] = item_parts.unchanged_lists(home.node)
            node = self._unchanged[home.node].get(node.id)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            inner = self._opened.get(node)
            kinds = [self.kind(node.elt, inner)] if inner is not None else []
        elif isinstance(node, ast.List | ast.Tuple):
            kinds = [self.kind(item, home) for item in node.elts]
        else:
            return None
        return ValueKind.OWN if kinds and set(kinds) == {ValueKind.OWN} else None

    def _parts_of_items(self, iterable: ast.expr, scope: Scope) -> list[ValueKind] | None:
        """The kinds of the parts of each item of an iterable, where the source says them; None where it does not."""
        found = item_parts.columns(iterable)
        if found is not None:
            return [joined(self.handed_kind(part, scope) for part in column) for column in found]
        held = item_parts.dict_of_items(iterable)
        owner = scope.find(held.id) if isinstance(held, ast.Name) else None
        if owner is not None and isinstance(owner.node, ast.FunctionDef):
            self.steps.take(len(walk(owner.node)))
            dicts = item_parts.dicts_of_variable(owner.node, held.id)
        else:
            dicts = [held] if held is not None and item_parts.has_plain_keys(held) else None
        if dicts is None:
            return None
        keys = [ValueKind.SCALAR]
        for one in dicts:
            if isinstance(one, ast.DictComp) and one in self._opened:
                keys.append(self.kind(one.key, self._opened[one]))
        return [joined(keys), self.kind(held, scope).item()]

    def annotation(self, node: ast.expr | None, scope: Scope) -> None:
        """Check a type that is written out: it is evaluated when the module is imported."""

        def is_value(named: ast.expr, root: ast.Name) -> bool:
            home = (scope.module.dotted(named) or "").partition(".")[0]
            bound = scope.find(root.id) is not None or root.id in scope.module.declared_global
            own = bound or home in scope.module.siblings
            return own and self.own_class(named, scope) is None

        if node is not None and (message := fault_of_type(node, is_value)):
            self.find("annotation", scope.module, node, message)
            return
        for part, root in attributes_in_type(node) if node is not None else ():
            variable = isinstance(root, ast.Name) and scope.find(root.id) is not None
            if (variable or scope.module.is_of_sibling(part)) and self.own_class(part.value, scope) is None:
                self.find("annotation", scope.module, node, f"{quoted(part)} is no type; name a class")

    def _type_parts(self, node: ast.expr, scope: Scope) -> str | None:
        """`_BUILT_IN` for a type with a built-in type in it, such as `int | tuple[int, ...] | None`; `_TYPE` for any
        other; None for what is no type. Each union is looked at once: a chain of them holds all that are shorter."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            if node not in self._unions:
                sides = self._type_parts(node.left, scope), self._type_parts(node.right, scope)
                self._unions[node] = None if None in sides else _BUILT_IN if _BUILT_IN in sides else _TYPE
            return self._unions[node]
        if isinstance(node, ast.Name) and node.id in names.TYPES and scope.find(node.id) is None:
            return _BUILT_IN
        if isinstance(node, ast.Constant) and node.value is None:
            return _TYPE
        if isinstance(node, ast.Subscript):
            return _BUILT_IN if self._is_type_form(node, scope) else None
        imported = isinstance(node, ast.Attribute | ast.Name) and scope.module.dotted(node) in names.TYPES
        return _TYPE if imported else None

    def check_option(self, name: object, node: ast.expr, scope: Scope) -> None:
        """Report the name of an option of a launch that a pass may not have."""
        if isinstance(name, str) and name in names.REFUSED_OPTIONS:
            rule, advice = names.REFUSED_OPTIONS[name]
            self.find(rule, scope.module, node, f"{name}: {advice}")

    def test(self, node: ast.expr, scope: Scope) -> ValueKind:
        """The kind of an expression whose truth decides something; a tensor there is a finding."""
        kind = self.kind(node, scope)
        if kind.is_tensor:
            self.read("whether a tensor is true is one of its values", scope, node)
        return kind

    def operate(self, node: ast.AST, sides: tuple[ValueKind, ...], op: ast.AST, scope: Scope) -> ValueKind:
        """An operator on values of these kinds."""
        found = max(sides)
        if isinstance(op, ast.Not):
            if found.is_tensor:
                self.read("whether a tensor is true is one of its values", scope, node)
            return ValueKind.SCALAR
        if scope.hook and found.is_tensor:
            self.find("hook", scope.module, node, HOOK)
        if isinstance(op, ast.Mult) and self.check_repeated(node, _sides(node), sides, scope):
            return min(sides)
        if isinstance(op, ast.Mod):
            self.check_text(node.right if isinstance(node, ast.BinOp) else node.value, sides[1], scope)
        text = isinstance(op, ast.Mod) and not sides[0].holds_tensors and found.holds_tensors
        text = text and (found is ValueKind.HOLDER or self.is_sequence(_sides(node)[0], scope))  # "%s" % (x,)
        mixed = isinstance(op, ast.Mod) and sides[0].is_tensor and sides[1].holds_tensors
        if text or (mixed and not self.is_single(_sides(node)[0], scope)):
            self.read("the text of a tensor has its values", scope, node)
        if isinstance(op, ast.UAdd):
            return found  # of a tensor it is that tensor
        if found is ValueKind.EITHER:
            return ValueKind.COMPUTED
        return ValueKind.OWN if found.is_tensor else found

    def check_repeated(
        self, node: ast.AST, sides: Sequence[ast.expr], kinds: Sequence[ValueKind], scope: Scope
    ) -> bool:
        """Report a product of a tensor with a list, a tuple or a text. Returns whether it is one: the result is no
        tensor then, and a variable that is given it is a list at the next look, too."""
        repeated = max(kinds).is_tensor and any(
            kind is ValueKind.HOLDER or (not kind.is_tensor and self.is_sequence(side, scope))
            for side, kind in zip(sides, kinds, strict=True)
        )
        if repeated:
            self.read("how often a list or a text is repeated is a number", scope, node)
        return repeated

    def _keys(self, kinds: list[ValueKind], node: ast.expr, scope: Scope) -> ValueKind:
        if any(kind.holds_tensors for kind in kinds):
            self.read("a tensor is no key: it stands for itself alone, not for its values", scope, node)
        if not isinstance(node, ast.Dict | ast.DictComp):
            self.check_order(node, self.holder(kinds), scope)
        return self.holder(kinds)

    def _compare(self, node: ast.Compare, scope: Scope) -> ValueKind:
        written = (node.left, *node.comparators)
        sides = [self._compared(v, scope) for v in written]
        result = ValueKind.SCALAR
        for op, left, right, before, other in zip(node.ops, sides, sides[1:], written, written[1:], strict=False):
            if isinstance(op, ast.Is | ast.IsNot):
                continue
            if isinstance(op, ast.In | ast.NotIn):
                self.note_used("__contains__", left)
                compared = right.holds_tensors and self.is_sequence(other, scope)  # with items; of a dict, with keys
                reads = left.holds_tensors or right.is_tensor or compared
            else:
                tensor = left.is_tensor or right.is_tensor
                reads = ValueKind.HOLDER in (left, right) or (tensor and len(node.ops) > 1)
                reads = reads or (tensor and self.compares_items(before, other, scope))
                result = ValueKind.OWN if tensor else result
            if scope.hook and (left.is_tensor or right.is_tensor):
                self.find("hook", scope.module, node, HOOK)
            if reads:
                self.read("whether tensors are equal, or ordered, is one of their values", scope, node)
        return result

    def compares_items(self, left: ast.expr, right: ast.expr, scope: Scope) -> bool:
        """Whether lists may be compared; see `passbench.policy.host.items.mixed_values`."""
        raise NotImplementedError

    def _compared(self, node: ast.expr, scope: Scope) -> ValueKind:
        """The kind of a side of a comparison. `type(x)` and types may stand there, and there alone."""
        if self._is_type_of(node, scope):
            self.seen.add(node)
            self.kind(node.args[0], scope)
            return ValueKind.SCALAR
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            return self.holder([self._compared(e, scope) for e in node.elts])
        if isinstance(node, ast.Name) and node.id in names.TYPES and scope.find(node.id) is None:
            return ValueKind.SCALAR
        return self.kind(node, scope)

    def _lambda(self, node: ast.Lambda, scope: Scope, *, bound: bool) -> None:
        inner = self.opened(node, scope, hook=node in self.hooks)
        for parameter in parameters(node):
            self.check_free(parameter.arg, node, scope)
        self.enter(node, scope, ValueKind.SCALAR if bound or self.flow.is_known(node) else ValueKind.TENSOR)
        self.kinds.join(node, RETURN, self.handed_kind(node.body, inner), single=self.is_single(node.body, inner))
        if self.is_sequence(node.body, inner):
            self.note_sequence(node, RETURN)

    def _comprehension(self, node: ast.expr, scope: Scope) -> ValueKind:
        """The kind of a comprehension's result. Names that its loops bind are known in it alone."""
        inner = self.opened(node, scope, hook=scope.hook)
        outside = scope
        for generator in node.generators:
            for name in (n.id for n in walk(generator.target) if isinstance(n, ast.Name)):
                self.check_free(name, generator.target, scope)
            self.iterate(generator.target, generator.iter, outside, inner)
            outside = inner
            for test in generator.ifs:
                self.test(test, inner)
        if isinstance(node, ast.SetComp):
            return self._keys([self.kind(node.elt, inner)], node, scope)
        if isinstance(node, ast.DictComp):
            keys = self._keys([self.kind(node.key, inner)], node, scope)
            return self.holder([keys, self.kind(node.value, inner)])
        return self.holder([self.kind(node.elt, inner)])

    def _subscript(self, node: ast.Subscript, scope: Scope) -> ValueKind:
        if self._is_type_form(node, scope):
            return self.type_value(node, scope)
        kind, by = self.index(node, scope)
        if not isinstance(node.slice, ast.Tuple | ast.Slice):
            self.mark_grids(node, by)
        if (item := self.rest_item(node)) is not None:
            return item
        named = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
        if named and kind is ValueKind.HOLDER and self.is_launch_dict(node.value, scope):
            return self.launched(node.slice.value)
        single = kind is ValueKind.HOLDER and not by.holds_tensors and not isinstance(node.slice, ast.Slice)
        if single and (made := self.made_items(node.value, scope)) is not None:
            return made
        if kind is ValueKind.OWN and not by.holds_tensors and not self.is_sequence(node.value, scope):
            return ValueKind.OWN  # a view of it
        return kind.item()

    @staticmethod
    def _is_type_form(node: ast.Subscript, scope: Scope) -> bool:
        """Whether a subscript is a type, such as `typing.Tuple[int, ...]` or `list[int]`."""
        built_in = isinstance(node.value, ast.Name) and scope.find(node.value.id) is None and node.value.id
        return built_in in _TYPES_OF_ITEMS or scope.module.dotted(node.value) in names.TYPE_FORMS


def _sides(node: ast.BinOp | ast.AugAssign) -> tuple[ast.expr, ast.expr]:
    return (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)

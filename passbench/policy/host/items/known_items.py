"""The static policy on items: of displays that variables and functions are, of dicts that keep what the pass has made,
and of the dict of a launch."""

import ast

from passbench.policy import item_parts
from passbench.policy.host.bindings import FIELDS
from passbench.policy.host.built_in_calls import BuiltInCalls
from passbench.policy.host.classes import fields_of
from passbench.policy.nodes import quoted, walk
from passbench.policy.scopes import KEYS, Scope, ValueKind, built_in_called, joined, own_nodes, owned_values


class KnownItems(BuiltInCalls):
    """Follows kinds into what is known of a container, and out of it."""

    def is_launch_dict(self, node: ast.expr, scope: Scope) -> bool:
        """As `LaunchItems` says, and what is put together of such dicts: `args = {**named_args, **kwargs}`."""
        if super().is_launch_dict(node, scope):
            return True
        owner = scope.find(node.id) if isinstance(node, ast.Name) else None
        if owner is None or not isinstance(owner.node, ast.FunctionDef):
            return False
        made = self._displays_of(owner.node)[0].get(node.id)
        together = isinstance(made, ast.Dict) and made.keys and not any(made.keys)
        return bool(together) and all(super(KnownItems, self).is_launch_dict(part, owner) for part in made.values)

    def launched_item(self, call: ast.Call, of: ast.expr, scope: Scope) -> ValueKind | None:
        """What `args.get("NAME", …)` of the dict of a launch is, the default aside; None for other calls."""
        name = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
        return self.launched(name) if isinstance(name, str) and self.is_launch_dict(of, scope) else None

    def index(self, node: ast.Subscript, scope: Scope) -> tuple[ValueKind, ValueKind]:
        """As `Expressions` does; of a dict that is asked for its keys it is noted what they may be."""
        kind, by = super().index(node, scope)
        self._note_key(node.value, node.slice, by, scope)
        return kind, by

    def put_into(self, container: ast.expr, kind: ValueKind, scope: Scope) -> None:
        """As `Given` does; of a dict in which the pass keeps what it has made it is noted what that is."""
        super().put_into(container, kind, scope)
        if (place := self._place_kept(container, scope)) is not None:
            self.kinds.join(*place, kind)

    def member(self, node: ast.Attribute, base: ValueKind, scope: Scope) -> ValueKind:
        """As `NamedValues` does. `index` of a device is a number, of a list it compares what it gets with each item."""
        if node.attr == "index" and node.attr not in self.fields | self.shared_names.keys():
            owner = scope.find(node.value.id) if isinstance(node.value, ast.Name) else None
            written = [node.value, *(owned_values(owner.node, node.value.id) if owner is not None else ())]
            ranges = any(isinstance(one, ast.Call) and built_in_called(one, scope) == "range" for one in written)
            if ranges or self.is_sequence(node.value, scope):
                message = f"{quoted(node)} is a method; call it where it is needed"
                self.find("forbidden_attribute", scope.module, node, message)
        return super().member(node, base, scope)

    def operate(self, node: ast.AST, sides: tuple[ValueKind, ...], op: ast.AST, scope: Scope) -> ValueKind:
        """As `Expressions` does. What `*=` and `%=` give to a variable hides that it is a list or a text."""
        changed = node.target if isinstance(node, ast.AugAssign) and isinstance(op, ast.Mult | ast.Mod) else None
        listed = changed is not None and sides[1].holds_tensors and self.is_sequence(changed, scope)
        if listed and not self._becomes_tensor(changed, scope):
            self.read("how often a list is repeated, or what a text shows, is no tensor", scope, node)
        return super().operate(node, sides, op, scope)

    def _becomes_tensor(self, target: ast.expr, scope: Scope) -> bool:
        """Whether a variable of this function is given a tensor, too, other than by `*=` and its kin."""
        if not isinstance(target, ast.Name) or scope.find(target.id) is not scope:
            return False
        self.steps.take(len(walk(scope.node)))
        assigned = (node for node in own_nodes(scope.node) if isinstance(node, ast.Assign))
        values = [n.value for n in assigned if any(isinstance(t, ast.Name) and t.id == target.id for t in n.targets)]
        return any(self.kind(value, scope).is_tensor for value in values)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> ValueKind:
        kind = super()._subscript(node, scope)
        own = self.own_class(node.value, scope)
        if own is not None and self.facts(own).is_enumeration:  # a member, by its name
            return joined(self.kinds.get(FIELDS, name) for name in fields_of(own))
        if kind.holds_tensors and (items := self._items_known(node, scope)):
            return joined(self.handed_kind(item, home) for item, home in items)
        return kind if (kept := self._kept(node.value, scope)) is None else kept

    def _items_written(self, node: ast.Subscript, scope: Scope) -> list[tuple[ast.expr, Scope]]:
        return super()._items_written(node, scope) or self._items_known(node, scope)

    def _items_known(self, node: ast.Subscript, scope: Scope) -> list[tuple[ast.expr, Scope]]:
        """What an item of a variable is, where it is written, if the variable is one display, or what a function of the
        pass returns that returns displays alone. Empty where that is not known."""
        owner = scope.find(node.value.id) if isinstance(node.value, ast.Name) else None
        if owner is None or not isinstance(owner.node, ast.FunctionDef):
            return []
        value = self._displays_of(owner.node)[0].get(node.value.id)
        displays = [(value, owner)]
        if isinstance(value, ast.Call):
            function = self.host_function(value.func, owner)
            if function is None or function.decorator_list:
                return []
            if function in self.homes:
                self.opened(function, self.scopes[self.homes[function].name], hook=function in self.hooks)
            if (inner := self._opened.get(function)) is None:
                return []
            displays = [(returned, inner) for returned in self._displays_of(function)[1]]
        found = [(item_parts.item_of(display, node.slice), home) for display, home in displays]
        return found if all(item is not None for item, _ in found) else []

    def _displays_of(self, function: ast.FunctionDef) -> tuple[dict[str, ast.expr], list[ast.expr | None]]:
        """`item_parts.kept_displays` of a function, and what each `return` has; nothing of a generator, which hands out
        something else."""
        if function not in self._kept_displays:
            self.steps.take(len(walk(function)))
            nodes = list(own_nodes(function))
            plain = not any(isinstance(n, ast.Yield | ast.YieldFrom) for n in nodes)
            returned = [n.value for n in nodes if isinstance(n, ast.Return) and plain]
            self._kept_displays[function] = item_parts.kept_displays(function), returned
        return self._kept_displays[function]

    def _parts_of_items(self, iterable: ast.expr, scope: Scope) -> list[ValueKind] | None:
        columns = self.flow.columns_of(iterable, scope)
        if columns is None:
            return super()._parts_of_items(iterable, scope)
        home = self.scopes[scope.module.name]
        self.steps.take(sum(map(len, columns)))
        return [joined(self.handed_kind(part, home) for part in column) for column in columns]

    def _kept(self, container: ast.expr, scope: Scope) -> ValueKind | None:
        """OWN where an expression is a dict that holds tensors which the pass has made, and nothing else; None of any
        other."""
        place = self._place_kept(container, scope)
        return ValueKind.OWN if place is not None and self.kinds.get(*place) is ValueKind.OWN else None

    def _place_kept(self, container: ast.expr, scope: Scope, what: str = "{}[]") -> tuple[object, str] | None:
        """Where it is noted what is put into one of `KeptTables`, or under which keys; None of other expressions."""
        if isinstance(container, ast.Name) and (scope.module.name, container.id) in self.kept.names:
            home = self.scopes[scope.module.name]
            return (home.node, what.format(container.id)) if scope.find(container.id) is home else None
        own = isinstance(container, ast.Attribute) and container.attr in self.kept.fields
        return (FIELDS, what.format(container.attr)) if own else None

    def _note_key(self, container: ast.expr, key: ast.expr, kind: ValueKind, scope: Scope) -> None:
        """Note what may be a key of one of `KeptTables`."""
        if (place := self._place_kept(container, scope, KEYS)) is not None:
            self.kinds.join(*place, self.holder([kind]))
            if self.is_sequence(key, scope):
                self.note_sequence(*place)

    def _name(self, node: ast.Name, scope: Scope, hook: bool) -> ValueKind:
        return self._or_keys(node, super()._name(node, scope, hook), scope)

    def _attribute(self, node: ast.Attribute, scope: Scope, hook: bool) -> ValueKind:
        return self._or_keys(node, super()._attribute(node, scope, hook), scope)

    def _or_keys(self, node: ast.expr, kind: ValueKind, scope: Scope) -> ValueKind:
        """The kind of a name or an attribute; of one of `KeptTables` that is asked for its keys it is theirs."""
        if node not in self.kept.asked_for_keys or (place := self._place_kept(node, scope, KEYS)) is None:
            return kind
        return self.kinds.get(*place)

    def hands_out_sequences(self, node: ast.expr, scope: Scope) -> bool:
        """As `Given` says; of one of `KeptTables` the keys may be."""
        return super().hands_out_sequences(node, scope) or self._place_kept(node, scope, KEYS) in self.sequences

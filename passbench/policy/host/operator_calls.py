"""The static policy on calls of torch's operators and of tensors' methods."""

import ast
import itertools
from dataclasses import dataclass

from passbench.policy import operators
from passbench.policy.host.arguments import Arguments
from passbench.policy.host.bindings import HOOK, WRITE_ADVICE
from passbench.policy.host.given import Keywords
from passbench.policy.nodes import bound_names, quoted, walk
from passbench.policy.scopes import Scope, ValueKind
from storage.graph import targets

_OF_NUMBERS = frozenset("tensor as_tensor asarray new_tensor".split())
"""Functions that make a tensor of numbers, of a list of tensors by a read that no observation sees."""

_ASKING = frozenset(f"operator.{n}" for n in "contains index not_ truth".split())
"""Functions that return what Python asks of a value: a number, or whether it is true."""


@dataclass(frozen=True)
class OperatorCall:
    """A call of an operator, `name` as written and `stored` as a record has it: its arguments in order, a method's
    tensor first, with their kinds, and the kinds of those given by name."""

    node: ast.Call
    name: str
    stored: str
    arguments: list[ast.expr]
    positional: list[ValueKind]
    keywords: Keywords
    scope: Scope

    @property
    def named(self) -> dict[str, ast.expr]:
        """Arguments by name."""
        return {keyword.arg: keyword.value for keyword in self.node.keywords if keyword.arg is not None}

    @property
    def largest(self) -> ValueKind:
        """The largest kind of its arguments."""
        return max((*self.positional, *self.keywords.values()), default=ValueKind.SCALAR)


class OperatorCalls(Arguments):
    """Follows kinds through operators, and refuses those that read values or write to what is not the pass's."""

    def _library(self, call: OperatorCall) -> ValueKind:
        """The kind of what one of torch's operators returns."""
        scope, given = call.scope, call.largest
        if given is ValueKind.ADDRESS:
            self.let_libraries_call()
        if scope.hook and given.holds_tensors and not self._resets(call):
            self.find("hook", scope.module, call.node, HOOK)
        self._check_numbers(call)
        effects = operators.library_call(call.stored, call.arguments, call.named)
        if effects.random:
            message = (
                f"{call.name} draws random numbers; a pass computes from its inputs alone (dropout: training=False)"
            )
            self.find("random", scope.module, call.node, message)
        if effects.reading and not self._has_classes_of_graph(call):
            self.read(f"{call.name} reads values", scope, call.node)
        kinds = dict(zip(map(id, call.arguments), call.positional, strict=False))
        kinds |= {id(call.named[key]): kind for key, kind in call.keywords.items() if key is not None}
        for written in effects.written:
            if not isinstance(written, ast.Constant) and not self._may_write(call, written, kinds.get(id(written))):
                message = f"{call.name} writes into {quoted(written)}; {WRITE_ADVICE}"
                self.find("in_place", scope.module, call.node, message)
        self._check_spread(call)
        if effects.scalar:
            if call.stored in targets.SYMBOLIC and given.holds_tensors:
                self.read(f"{call.name} is for numbers", scope, call.node)
            return ValueKind.SCALAR
        first = call.positional[0] if call.positional else ValueKind.SCALAR
        if call.stored in _ASKING and given.holds_tensors:
            self.read(f"{call.name} tells of a tensor's values", scope, call.node)
            return ValueKind.SCALAR
        product = call.stored == "operator.mul" and len(call.arguments) == 2
        if product and self.check_repeated(call.node, call.arguments, call.positional, scope):
            return min(call.positional)
        if call.stored.startswith("operator.") and not given.is_tensor:
            return max(call.positional, default=ValueKind.SCALAR).item()
        if effects.written:
            return ValueKind.OWN
        if effects.views:
            return first if first is ValueKind.OWN else ValueKind.TENSOR
        return ValueKind.OWN if effects.fresh else ValueKind.TENSOR

    def _resets(self, call: OperatorCall) -> bool:
        """Whether a hook of a configuration sets what each launch gets under a name, and the pass has made, to a
        constant: `args["out_ptr"].zero_()`."""
        value = call.arguments[1:]
        plain = all(isinstance(a, ast.Constant) for a in value) and not call.keywords
        made = call.stored in (".zero_", ".fill_") and call.positional[0] is ValueKind.OWN
        return made and plain and call.scope.node in self.before_launches

    @staticmethod
    def _may_write(call: OperatorCall, written: ast.expr, kind: ValueKind | None) -> bool:
        """Whether a call writes to what the pass has made. What has a method that writes is a tensor, where an argument
        may be a list of others' tensors."""
        of_itself = call.stored.startswith(".") and written is call.arguments[0]
        return kind is ValueKind.OWN or (of_itself and kind in (ValueKind.COMPUTED, ValueKind.OWN_OR_HELD))

    def _check_spread(self, call: OperatorCall) -> None:
        """Report `**values` of an operator that it may write to, `out` among them, or `inplace`; and what decides
        whether it writes, where `**values` or `*values` may hand it in."""
        spread = call.keywords.get(None)
        starred = any(isinstance(argument, ast.Starred) for argument in call.arguments)
        if spread is None and not starred:
            return
        switches = operators.switched_by(call.stored)
        switches += ("inplace",) if operators.takes_inplace(call.stored) else ()
        keys = self._spread_keys(call)
        if spread is not None and (spread.holds_tensors or (switches and keys is None)):
            message = f"{call.name} may write into what ** hands in, or by it; name each argument"
            self.find("in_place", call.scope.module, call.node, message)
            return
        for name in switches:
            if name in (keys or ()) or (starred and name not in call.named):
                message = f"{call.name} may get its {name} by a *; hand it in by name, as {name}=…"
                self.find("in_place", call.scope.module, call.node, message)

    def _spread_keys(self, call: OperatorCall) -> set[str] | None:
        """The keys of all `**values` of a call that may hand in something else than `False`; None where they are not
        written out: at the call, or as the one value of a variable of the function that nothing else reads."""
        keys: set[str] = set()
        for spread in (k.value for k in call.node.keywords if k.arg is None):
            written = self.written_dict(spread, call.scope)
            if written is None:
                return None
            for key, value in zip(written.keys, written.values, strict=True):
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                    return None
                if not (isinstance(value, ast.Constant) and value.value is False):
                    keys.add(key.value)
        return keys

    def _has_classes_of_graph(self, call: OperatorCall) -> bool:
        """Whether `one_hot` gets the number of classes that the pattern's own `one_hot` gets: where the graph's is -1
        eager reads its operand, too."""
        named = "num_classes" in call.named
        if not operators.counts_classes(call.stored) or not (named or len(call.arguments) > 1):
            return False
        number = call.named["num_classes"] if named else call.arguments[1]
        kind = call.keywords["num_classes"] if named else call.positional[1]
        owner = call.scope.find(number.id) if isinstance(number, ast.Name) else None
        if kind is ValueKind.SCALAR or owner is None or (owner.node, number.id) not in self.class_numbers:
            return False
        self.steps.take(len(walk(owner.node)))
        return bound_names(owner.node)[number.id] == 1

    def _check_numbers(self, call: OperatorCall) -> None:
        """Report a tensor where an operator, or a method of tensors, needs a number: torch reads it for that.

        A tensor is one that the pass has made here. Of a parameter, which may be either, the evidence tells.
        """
        kinds = (*call.positional, *call.keywords.values())
        if ValueKind.HOLDER in kinds and call.stored.rpartition(".")[2] in _OF_NUMBERS:
            message = f"{call.name} reads the tensors of a list one by one; write torch.stack(…)"
            self.read(message, call.scope, call.node)
        pairs = zip(call.arguments, call.positional, strict=False)
        plain = itertools.takewhile(lambda pair: not isinstance(pair[0], ast.Starred), pairs)
        named = ((key, (value, call.keywords[key])) for key, value in call.named.items())
        for place, (value, kind) in (*enumerate(plain), *named):
            number = self._is_made(value, kind, call.scope) and operators.is_number(call.stored, place)
            if number or (kind is not ValueKind.SCALAR and operators.is_read_unseen(call.stored, place)):
                message = f"{call.name} needs a number, or numbers, where it gets a tensor"
                self.read(message, call.scope, call.node)

    def _is_made(self, node: ast.expr, kind: ValueKind, scope: Scope) -> bool:
        """Whether an expression of this kind is a tensor that the pass has made here, or a tuple or list of such."""
        parts = node.elts if isinstance(node, ast.Tuple | ast.List) and kind.holds_tensors else []
        return kind.is_made or any(self.kind(part, scope).is_made for part in parts)

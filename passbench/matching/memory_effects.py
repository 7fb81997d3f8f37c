"""What the operations of an fx graph do besides computing a value: writes, random numbers, contexts, shared memory."""

import operator
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import fx

from passbench.matching.op_signature import argument, is_operator, op_name, schemas, target_of
from storage.graph import effects
from storage.graph.record import Op, Ref
from storage.graph.targets import TargetError, name_of

_FRESH_ATTRIBUTES = frozenset("shape dtype device ndim is_cuda requires_grad layout itemsize".split())
_UNMARKED = frozenset(
    """dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout feature_dropout type_as einsum meshgrid
    broadcast_tensors atleast_1d atleast_2d atleast_3d cartesian_prod combinations _unsafe_view rrelu""".split()
)
"""Operations that may return their input or a view of it, although their schemas do not say so."""

_WRITES_ASIDE = frozenset(("batch_norm", "instance_norm", "embedding"))
"""Operations that may write, but not what they return."""


class Effects(NamedTuple):
    """`writes`: values whose memory changes; `random`: draws random numbers; `context`: changes how later ops run."""

    writes: tuple[fx.Node, ...] = ()
    random: bool = False
    context: bool = False

    @property
    def any(self) -> bool:
        return bool(self.writes) or self.random or self.context


NONE = Effects()


def effects_of(node: fx.Node) -> Effects:
    """The effects of an operation, from the tables of `storage.graph.effects` and the schemas of ATen overloads."""
    if node.op not in ("call_function", "call_method"):
        return NONE
    op, inputs = _record(node)
    written = [inputs[ref.index] for ref in effects.writes(op)] + _marked_writes(node)
    return Effects(tuple(dict.fromkeys(written)), effects.is_random(op), effects.is_context(op))


def _record(node: fx.Node) -> tuple[Op, list[fx.Node]]:
    """The node as a record's op, and the nodes that its references count."""
    inputs: list[fx.Node] = []

    def number(value: fx.Node) -> Ref:
        inputs.append(value)
        return Ref(len(inputs) - 1)

    args, kwargs = fx.node.map_arg((node.args, node.kwargs), number)
    return Op("method" if node.op == "call_method" else "function", _name(node), args, kwargs), inputs


def _name(node: fx.Node) -> str:
    if isinstance(node.target, str):
        return node.target
    try:
        return name_of(node.target)
    except TargetError:
        overload = isinstance(node.target, torch._ops.OpOverload)
        return f"torch.ops.{node.target}" if overload else f"{node.target.__module__}.{op_name(node)}"


def _marked_writes(node: fx.Node) -> list[fx.Node]:
    if not isinstance(node.target, torch._ops.OpOverload):
        return []
    written = [a.name for a in node.target._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    return [n for name in written for n in _nodes(argument(node, name))]


def _nodes(value: Any) -> list[fx.Node]:
    found: list[fx.Node] = []
    fx.node.map_arg(value, found.append)
    return found


def aliased_inputs(node: fx.Node, own: Effects) -> list[fx.Node]:
    """The inputs with which the node's result may share memory; all of them where that is not known. `own` are the
    node's effects."""
    if node.op not in ("call_function", "call_method"):
        return []
    if node.target is getattr and node.args[1] in _FRESH_ATTRIBUTES:
        return []
    name = op_name(node)
    if own.writes and name not in _WRITES_ASIDE:
        return list(own.writes)
    if effects.makes_new_memory(_record(node)[0]):
        return []
    if node.target in (getattr, operator.getitem):
        return _nodes(node.args[0])
    if name in _UNMARKED or is_operator(node.target):
        return node.all_input_nodes
    known = schemas(target_of(node)) or schemas(name)
    if not known:
        return node.all_input_nodes
    shared = (value.alias_info for schema in known for value in schema.returns)
    if all(info is None or info.is_write for info in shared):  # written results are those of `out=` and in-place forms
        return []
    first = node.args[0] if node.args else node.kwargs.get("input", node.kwargs.get("self"))
    return _nodes(first) or node.all_input_nodes


class Memory:
    """Alias classes and effects of a graph's values, kept up to date while the graph is rewritten.

    Values of one class may share memory, values of two cannot.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self.effects: dict[fx.Node, Effects] = {}
        self._sources: dict[fx.Node, list[fx.Node]] = {}
        for node in graph.nodes:
            effects = effects_of(node)
            if effects.any:
                self.effects[node] = effects
            self._sources[node] = aliased_inputs(node, effects)
        self._classes = _joined(self._sources)
        self._members: dict[fx.Node, list[fx.Node]] = {}
        for node, kind in self._classes.items():
            self._members.setdefault(kind, []).append(node)

    def of(self, node: fx.Node) -> fx.Node:
        """The representative of the node's class."""
        return self._classes[node]

    def effects_at(self, node: fx.Node) -> Effects:
        return self.effects.get(node, NONE)

    def epochs(self, nodes: Iterable[fx.Node]) -> dict[fx.Node, tuple]:
        """Of nodes in some order: how many writes to the memory of its inputs precede each one, how many contexts, and
        how many random draws precede its own."""
        writes: Counter[fx.Node] = Counter()
        contexts = randoms = 0
        epochs = {}
        for node in nodes:
            effects = self.effects_at(node)
            before = tuple(writes[self.of(value)] for value in node.all_input_nodes)
            epochs[node] = (before, contexts, randoms if effects.random else None)
            writes.update(self.of(value) for value in effects.writes)
            contexts += effects.context
            randoms += effects.random
        return epochs

    def members(self, kind: fx.Node) -> list[fx.Node]:
        """The values of a class, in no order."""
        return self._members[kind]

    def apart(self, kinds: set[fx.Node], outputs: set[fx.Node], inside: set[fx.Node]) -> dict[fx.Node, fx.Node]:
        """The classes `kinds` divided as if the results in `inside` were fresh: what shares memory without them.

        Each of `outputs` is in a class of its own then, with what is derived from it.
        """
        hidden = inside - outputs
        return _joined(
            {
                node: [] if node in inside else [v for v in self._sources[node] if v not in hidden]
                for kind in kinds
                for node in self._members[kind]
                if node not in hidden
            }
        )

    def replaced(self, call: fx.Node, matched: list[fx.Node], stands_for: dict[fx.Node, fx.Node]) -> None:
        """`call` does what the `matched` nodes did; `stands_for` says what has taken the place of which result."""
        all_effects = [self.effects_at(n) for n in matched]
        written = {self._classes[v] for e in all_effects for v in e.writes}
        writes = tuple(v for v in call.all_input_nodes if self._classes[v] in written)
        random, context = any(e.random for e in all_effects), any(e.context for e in all_effects)
        if writes or random or context:
            self.effects[call] = Effects(writes, random, context)
        if call not in stands_for.values():
            self._add(call, call, [])
        sharing = list(call.all_input_nodes)
        for old, new in stands_for.items():
            kind = self._classes[old]
            self._add(new, kind, [v for v in sharing if self._classes[v] is kind])
            sharing.append(new)
            for user in new.users:
                self._sources[user] = [new if v is old else v for v in self._sources.get(user, ())]
                if user in self.effects:
                    writes = tuple(new if v is old else v for v in self.effects[user].writes)
                    self.effects[user] = self.effects[user]._replace(writes=writes)
        for node in matched:
            self.effects.pop(node, None)
            del self._sources[node]
            self._members[self._classes[node]].remove(node)

    def _add(self, node: fx.Node, kind: fx.Node, sources: list[fx.Node]) -> None:
        self._classes[node], self._sources[node] = kind, sources
        self._members.setdefault(kind, []).append(node)


def _joined(sources: dict[fx.Node, list[fx.Node]]) -> dict[fx.Node, fx.Node]:
    parent = {node: node for node in sources}

    def find(node: fx.Node) -> fx.Node:
        while parent[node] is not node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for node, found in sources.items():
        for value in found:
            if value in parent:
                parent[find(value)] = find(node)
    return {node: find(node) for node in sources}

"""Whether a match can be replaced by one call, and where that call goes.

The call computes what the match returns; it need not write what the pattern writes, nor share memory where it does.
So a match must be convex in the order that data, writes, random numbers and contexts impose, and nobody outside may
see the difference. Writes to the graph's own inputs are the exception: whether they are made, the caller checks.
"""

from typing import NamedTuple

from torch import fx

from passbench.matching.describe import describe
from passbench.matching.match import Match
from passbench.matching.memory_effects import Memory


class Refusal(NamedTuple):
    """Why a match is not replaced: the pattern's operation and the graph's node that are in the way."""

    pattern_node: fx.Node
    graph_node: fx.Node
    expected: str
    found: str


class Place(NamedTuple):
    """The call goes before `before`, the nodes `early` move in front of the call."""

    before: fx.Node
    early: list[fx.Node]


def place(match: Match, memory: Memory) -> Place | Refusal:
    """Where the replacement of a match goes, or why there is no such place."""
    refusal = _bound_inside(match) or _used_outside(match) or _told_apart(match, memory)
    if refusal is not None:
        return refusal
    divided = _divide(match, memory)
    if isinstance(divided, Refusal):
        return divided
    early, late, beyond = divided
    return _seen_in_memory(match, memory, late, beyond) or Place(late[0] if late else beyond, early)


def _bound_inside(match: Match) -> Refusal | None:
    found: list[tuple[str, fx.Node]] = []
    for name, value in match.bound.items():
        fx.node.map_arg(value, lambda node, name=name: found.append((name, node)))
    for name, node in found:
        if node in match.inside:
            p = next(p for p, g in match.nodes.items() if g is node)
            return Refusal(p, node, f"{name} to be computed outside the match", f"{node.name}, which is inside")
    return None


def _used_outside(match: Match) -> Refusal | None:
    outputs = set(match.outputs)
    for p, g in match.nodes.items():
        for user in g.users if g not in outputs else ():
            if user not in match.inside:
                found = f"a use outside by {describe(user)}; return it from the pattern too"
                return Refusal(p, g, f"{g.name} to be used inside the match only", found)
    return None


def _told_apart(match: Match, memory: Memory) -> Refusal | None:
    """Parameters that share memory that the pattern writes, or reads and writes in another order than the pattern's."""
    p = match.pattern.ops[-1]
    effects = [memory.effects_at(n) for n in match.inside]
    if not any(e.any for e in effects):
        return None
    written = {memory.of(v) for e in effects for v in e.writes}
    owners: dict[fx.Node, str] = {}
    for name, value in match.bound.items():
        nodes: list[fx.Node] = []
        fx.node.map_arg(value, nodes.append)
        for node in nodes:
            other = owners.setdefault(memory.of(node), name)
            if other != name and memory.of(node) in written:
                expected = f"{name} not to share memory with {other}, as the pattern changes that in place"
                return Refusal(p, node, expected, f"{node.name}, which may share it")
    if memory.epochs(match.nodes[p] for p in match.pattern.ops) != memory.epochs(sorted(match.inside)):
        found = "another order of the same in the graph"
        return Refusal(p, match.nodes[p], "changes in place and random draws in the pattern's order", found)
    return None


class _Touched:
    """What a set of nodes reads, writes and does otherwise."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.reads: set[fx.Node] = set()
        self.writes: set[fx.Node] = set()
        self.any = self.random = self.context = False

    def add(self, node: fx.Node) -> None:
        effects = self.memory.effects_at(node)
        self.any = True
        self.random |= effects.random
        self.context |= effects.context
        self.reads.update(map(self.memory.of, node.all_input_nodes))
        self.writes.update(map(self.memory.of, effects.writes))

    def conflict(self, node: fx.Node) -> str:
        """Why the node may not change places with these; empty if it may."""
        effects = self.memory.effects_at(node)
        if self.any and (effects.context or self.context):
            return "no autocast boundary inside the match"
        if effects.random and self.random:
            return "no random numbers drawn between the matched operations"
        written = map(self.memory.of, effects.writes)
        if any(c in self.reads or c in self.writes for c in written) or (
            self.writes and any(self.memory.of(v) in self.writes for v in node.all_input_nodes)
        ):
            return "no change in place between the matched operations"
        return ""


def _divide(match: Match, memory: Memory) -> tuple[list[fx.Node], list[fx.Node], fx.Node] | Refusal:
    """What stands between the matched nodes and comes to stand before and behind the call, and the node after them.

    Nodes that stand before the first of those behind stay where they are and are not listed.
    """
    node, last = min(match.inside), max(match.inside)
    early: list[fx.Node] = []
    late: dict[fx.Node, None] = {}
    within, behind = _Touched(memory), _Touched(memory)
    p_of = {g: p for p, g in match.nodes.items()}
    while True:
        if node in match.inside:
            cause = next((v for v in node.all_input_nodes if v in late), None)
            if cause is not None:
                found = f"{describe(node)} depends on one through {cause.name}, outside the match"
                return Refusal(p_of[node], node, "no input of the match to depend on its outputs", found)
            conflict = behind.conflict(node)
            if conflict:
                between = next((n for n in late if memory.effects_at(n).any), next(iter(late)))
                return Refusal(p_of[node], between, conflict, f"{describe(between)} in between")
            within.add(node)
        elif any(v in match.inside or v in late for v in node.all_input_nodes) or (
            within.conflict(node) or behind.conflict(node)
        ):
            late[node] = None
            behind.add(node)
        elif late:
            early.append(node)
        if node is last:
            return early, list(late), node.next
        node = node.next


def _seen_in_memory(match: Match, memory: Memory, late: list[fx.Node], beyond: fx.Node) -> Refusal | None:
    """A node that would read other contents if the call neither wrote in place nor returned views."""
    outputs = set(match.outputs)
    written = {memory.of(v) for n in match.inside for v in memory.effects_at(n).writes}
    kinds = written | {memory.of(o) for o in outputs}
    behind = set(late)
    users = {user for kind in kinds for value in memory.members(kind) for user in value.users}
    later = sorted(n for n in users if n in behind or not n < beyond) if memory.effects else []
    if not written and not any(memory.effects_at(n).writes for n in later):
        return None
    sides = memory.apart(kinds, outputs, match.inside)
    ours = {sides[o] for o in outputs}
    p = match.pattern.ops[-1]
    dirty: set[tuple[fx.Node, fx.Node]] = set()  # a class, and the side of it that was written
    for node in later:
        for value in node.all_input_nodes:
            kind, side = memory.of(value), sides.get(value)
            if kind in written and side not in ours:
                expected = f"{value.name}, which the pattern changes in place, not to be used afterwards"
                return Refusal(p, value, expected, f"a use by {describe(node)}")
            if any(c is kind and s is not side and (s in ours or side in ours) for c, s in dirty):
                expected = f"{value.name} not to share memory, through the match, with what changes in place later"
                return Refusal(p, value, expected, f"a use by {describe(node)}")
        for value in memory.effects_at(node).writes:
            if memory.of(value) in kinds:
                dirty.add((memory.of(value), sides[value]))
    for value in sides:
        if value.op == "placeholder" and any(c is memory.of(value) and s in ours for c, s in dirty):
            expected = f"no view of the input {value.name} to be changed in place later"
            return Refusal(p, value, expected, "a change through what the pattern returns")
    return None

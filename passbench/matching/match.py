"""Finding a pattern in the fx graph of a variant.

A match is exact: calls are the same as `passbench.matching.operations` has it, constants are equal in type and value,
devices aside. A parameter of the pattern stands for any value, a constant too, and for the same one wherever it is
used.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import fx

from passbench.matching.operations import operation_of, same_operation
from passbench.matching.same_call import compare, same_value
from passbench.matching.trace_pattern import Pattern

BUDGET = 1_000_000
"""Comparisons of calls for one pattern in one graph, at most: unconnected parts can match in very many ways."""


@dataclass
class Match:
    """What stands in the graph for each operation (a node) and each parameter (a node or a constant) of the pattern."""

    pattern: Pattern
    nodes: dict[fx.Node, fx.Node] = field(default_factory=dict)
    bound: dict[str, Any] = field(default_factory=dict)
    inside: set[fx.Node] = field(default_factory=set)

    @property
    def outputs(self) -> list[fx.Node]:
        return [self.nodes[p] for p in self.pattern.outputs]

    def copy(self) -> "Match":
        return Match(self.pattern, dict(self.nodes), dict(self.bound), set(self.inside))


class _Step(NamedTuple):
    """Next to match is `anchor`, reached from the first value of `path` through the users that follow; with no path,
    it may be anywhere."""

    anchor: fx.Node
    path: tuple[fx.Node, ...]


class Matcher:
    """Searches one graph for one pattern. Nodes in `taken` are not matched; the caller may add to it."""

    def __init__(self, pattern: Pattern, graph: fx.Graph, taken: set[fx.Node]) -> None:
        self.pattern, self.taken = pattern, taken
        self.left = BUDGET
        self._anchors = _anchors(pattern)
        self._steps = _plan(pattern, self._anchors[::-1])
        self._position = {node: number for number, node in enumerate(graph.nodes)}
        self._calls: dict[Any, list[fx.Node]] = {}
        for node in graph.nodes:
            if _is_call(node) and node not in taken:
                self._calls.setdefault(operation_of(node), []).append(node)

    def roots(self) -> list[fx.Node]:
        """Nodes at which a match can have its last operation, in graph order."""
        return self._alike(self._steps[0].anchor)

    def at(self, node: fx.Node) -> Iterator[Match]:
        """Matches whose last operation is `node`."""
        match = Match(self.pattern)
        if self._unify(self._steps[0].anchor, node, match):
            yield from self._extend(match, 1)

    def in_order(self, match: Match) -> Match:
        """The same operations matched in the pattern's order, where they can be: of results that are computed alike,
        the pattern's first is then the graph's first."""
        if self._ordered(match):
            return match
        for root in reversed(self.roots()):
            other = Match(self.pattern)
            if root in match.inside and self._unify(self._steps[0].anchor, root, other):
                for found in self._extend(other, 1, match.inside):
                    if found.inside == match.inside:
                        return found
        return match

    def _ordered(self, match: Match) -> bool:
        places = [self._position[match.nodes[p]] for p in self._anchors if p in match.nodes]
        return places == sorted(places)

    def _alike(self, p: fx.Node) -> list[fx.Node]:
        return self._calls.get(operation_of(p), [])

    def _extend(self, match: Match, number: int, within: set[fx.Node] | None = None) -> Iterator[Match]:
        """Matches that have what `match` has, from step `number` on; in the pattern's order, and the last operations
        first, if they are to be `within` some."""
        if number == len(self._steps):
            yield match
            return
        step = self._steps[number]
        candidates = self._candidates(step, match)
        if within is not None:
            candidates = [node for node in reversed(candidates) if node in within]
        for node in candidates:
            attempt = match.copy()
            if self._unify(step.anchor, node, attempt) and (within is None or self._ordered(attempt)):
                yield from self._extend(attempt, number + 1, within)

    def _candidates(self, step: _Step, match: Match) -> list[fx.Node]:
        if step.path:
            start = step.path[0]
            value = match.bound[str(start.target)] if start.op == "placeholder" else match.nodes[start]
            if isinstance(value, fx.Node):
                reached = [value]
                for p in step.path[1:]:
                    users = dict.fromkeys(user for node in reached for user in node.users)
                    reached = [user for user in users if same_operation(p, user)]
                return sorted((n for n in reached if n in self._position), key=self._position.__getitem__)
        near = self._position[match.nodes[self._steps[0].anchor]]
        return sorted(self._alike(step.anchor), key=lambda n: abs(self._position[n] - near))

    def _unify(self, p: fx.Node, g: Any, match: Match) -> bool:
        work = [(p, g)]
        while work:
            p, g = work.pop()
            if p.op == "placeholder":
                if not same_value(match.bound.setdefault(str(p.target), g), g):
                    return False
                continue
            if p in match.nodes or g in match.inside:
                if match.nodes.get(p) is not g:
                    return False
                continue
            if not _is_call(g) or g in self.taken or not same_operation(p, g) or self.left <= 0:
                return False
            self.left -= 1
            pairs, difference = compare(p, g)
            if difference is not None:
                return False
            match.nodes[p] = g
            match.inside.add(g)
            work.extend(reversed(pairs))
        return True


def _is_call(value: Any) -> bool:
    return isinstance(value, fx.Node) and value.op in ("call_function", "call_method")


def _anchors(pattern: Pattern) -> list[fx.Node]:
    """The operations whose results no other operation uses, in order. All others are found from these."""
    inside = set(pattern.ops)
    return [n for n in pattern.ops if not any(user in inside for user in n.users)]


def _plan(pattern: Pattern, anchors: list[fx.Node]) -> list[_Step]:
    """The steps in which to match these operations, the first first."""
    known: set[fx.Node] = set()
    steps: list[_Step] = []
    while anchors:
        paths = ((anchor, _path(anchor, known)) for anchor in anchors)
        anchor, path = next(((a, p) for a, p in paths if p), (anchors[0], ()))
        anchors.remove(anchor)
        steps.append(_Step(anchor, path))
        work = [anchor]
        while work:
            node = work.pop()
            if node not in known:
                known.add(node)
                work.extend(node.all_input_nodes)
    return steps


def _path(anchor: fx.Node, known: set[fx.Node]) -> tuple[fx.Node, ...]:
    """The shortest way from a known value down to `anchor`; empty if there is none."""
    down: dict[fx.Node, fx.Node | None] = {anchor: None}
    queue = [anchor]
    for node in queue:
        for value in node.all_input_nodes:
            if value in down:
                continue
            down[value] = node
            if value in known:
                path: list[fx.Node] = []
                step: fx.Node | None = value
                while step is not None:
                    path.append(step)
                    step = down[step]
                return tuple(path)
            queue.append(value)
    return ()

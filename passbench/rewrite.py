"""Applying a pass: every match of every pattern, in pass order, becomes a call of the replacement."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx
from torch.fx.node import map_arg

from passbench.contract import PassRule, Picked, picked_args
from passbench.match import Match, Matcher, Miss, describe
from passbench.opsig import alias_classes, is_barrier, mutated
from passbench.pattern import trace_pattern


class RewriteError(Exception):
    """The rewritten graph differs from the original outside the matches: a fault of PassBench, not of the pass."""


@dataclass(frozen=True)
class Applied:
    """What applying a pass did: matches by rule name in pass order, and the nearest miss of every rule without one."""

    matches: dict[str, int]
    misses: tuple[Miss, ...]

    @property
    def total(self) -> int:
        return sum(self.matches.values())

    def diagnosis(self) -> str:
        """The misses, nearest first, one a line."""
        ordered = sorted(self.misses, key=lambda m: len(m.pattern.ops) - m.matched)
        return "\n".join(str(miss) for miss in ordered)


def apply_pass(graph: fx.Graph, rules: list[PassRule]) -> Applied:
    """Rewrite `graph` in place. Raises ContractError on a malformed rule, RewriteError if a check afterwards fails."""
    before = {node: (node.op, node.target, node.args, dict(node.kwargs)) for node in graph.nodes}
    rewriting = _Rewriting(graph)
    matches: dict[str, int] = {}
    misses: list[Miss] = []
    for rule in rules:
        pattern = trace_pattern(rule.pattern, rule.name)
        arguments = picked_args(rule)
        matcher = Matcher(pattern)
        matches[rule.name] = rewriting.replace_all(matcher, rule.replacement, arguments)
        if not matches[rule.name]:
            misses.append(matcher.nearest_miss(graph))
    graph.lint()
    _check_outside(graph, before, rewriting)
    return Applied(matches, tuple(misses))


class _Rewriting:
    """A graph under rewriting: which nodes a replacement brought in, which it took out, and what stands for them."""

    def __init__(self, graph: fx.Graph) -> None:
        self.graph = graph
        self.inserted: set[fx.Node] = set()
        self.removed: set[fx.Node] = set()
        self.stands_for: dict[fx.Node, fx.Node] = {}

    def replace_all(self, matcher: Matcher, replacement: Callable, arguments: tuple) -> int:
        count = 0
        for node in list(self.graph.nodes):
            if node in self.removed:
                continue
            allowed = [n for n in self.graph.nodes if n.op.startswith("call_") and n not in self.inserted]
            if node.op == "output" or node.op == "placeholder" or node in self.inserted:
                continue
            for match in matcher.at(node, allowed):
                place = _Placement.of(self.graph, match, matcher)
                if place is not None:
                    self._replace(match, place, replacement, arguments)
                    count += 1
                    break
        return count

    def _replace(self, match: Match, before: fx.Node, replacement: Callable, arguments: tuple) -> None:
        args = _resolve(arguments, match)
        with self.graph.inserting_before(before):
            call = self.graph.call_function(replacement, args)
            self.inserted.add(call)
            for number, output in enumerate(match.pattern.outputs):
                old, new = match.nodes[output], call
                if not match.pattern.single:
                    new = self.graph.call_function(operator.getitem, (call, number))
                    self.inserted.add(new)
                old.replace_all_uses_with(new)
                self.stands_for[old] = new
        order = {node: position for position, node in enumerate(self.graph.nodes)}
        for node in sorted(match.nodes.values(), key=order.__getitem__, reverse=True):
            self.graph.erase_node(node)
            self.removed.add(node)


def _resolve(value: Any, match: Match) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_resolve(v, match) for v in value)
    return match.bound[value.name] if isinstance(value, Picked) else value


class _Placement:
    """Decides where the replacement of a match can stand, and whether it can at all."""

    def __init__(self, graph: fx.Graph, match: Match, matcher: Matcher) -> None:
        self.order = {node: position for position, node in enumerate(graph.nodes)}
        self.nodes = list(graph.nodes)
        self.graph, self.match, self.matcher = graph, match, matcher
        self.inside = set(match.nodes.values())
        self.outputs = [match.nodes[p] for p in match.pattern.outputs]
        positions = [self.order[n] for n in self.inside]
        self.first, self.last = min(positions), max(positions)

    @classmethod
    def of(cls, graph: fx.Graph, match: Match, matcher: Matcher) -> fx.Node | None:
        """The node before which the replacement goes; None, with the reason noted as a miss, if there is no place."""
        place = cls(graph, match, matcher)
        return place._position() if place._closed() and place._order_of_effects_kept() else None

    def _refuse(self, pattern_node: fx.Node, node: fx.Node, expected: str, found: str) -> bool:
        self.matcher.note(self.match, pattern_node, node, expected, found)
        return False

    def _closed(self) -> bool:
        for p, g in self.match.nodes.items():
            if g in self.outputs:
                continue
            for user in g.users:
                if user not in self.inside:
                    expected = f"{g.name} to be used inside the pattern only"
                    return self._refuse(p, g, expected, f"a use by {describe(user)}; return it from the pattern too")
        return True

    def _order_of_effects_kept(self) -> bool:
        between = [n for n in self.nodes[self.first : self.last + 1] if n not in self.inside]
        written = [v for n in self.inside for v in mutated(n)]
        anchor = self.match.pattern.ops[-1]
        barrier = next((n for n in between if is_barrier(n)), None)
        if barrier is not None:
            return self._refuse(anchor, barrier, "no autocast boundary inside the match", describe(barrier))
        if not written and not any(mutated(n) for n in between):
            return True
        classes = alias_classes(self.graph)
        touched = {classes[v] for n in self.inside for v in (n, *n.all_input_nodes)}
        own = {classes[v] for v in written}
        for node in between:
            if any(classes[v] in touched for v in mutated(node)) or any(
                classes[v] in own for v in node.all_input_nodes
            ):
                found = f"{describe(node)} in between"
                return self._refuse(anchor, node, "no change in place between the matched operations", found)
        for node in self.nodes[self.last + 1 :]:
            for value in node.all_input_nodes:
                outside = value not in self.inside and self.order[value] <= self.last
                if outside and classes[value] in own:
                    expected = f"{value.name}, which the pattern changes in place, not to be used afterwards"
                    return self._refuse(anchor, value, expected, f"a use by {describe(node)}")
        return True

    def _position(self) -> fx.Node | None:
        inputs = [self.order[v] for n in self.inside for v in n.all_input_nodes if v not in self.inside]
        users = [self.order[u] for o in self.outputs for u in o.users if u not in self.inside]
        earliest = max(inputs, default=-1)
        latest = min([*users, self.last + 1])
        if earliest < latest:
            return self.nodes[latest]
        expected = "every input of the match to be there before its first output is used"
        node = self.nodes[latest]
        self._refuse(self.match.pattern.ops[-1], node, expected, describe(node))
        return None


def _check_outside(graph: fx.Graph, before: dict[fx.Node, tuple], rewriting: _Rewriting) -> None:
    """Everything outside the matches is as it was, but for reading replaced outputs."""

    def stand_in(node: fx.Node) -> fx.Node:
        while node in rewriting.stands_for:
            node = rewriting.stands_for[node]
        return node

    now = set(graph.nodes)
    for node, (op, target, args, kwargs) in before.items():
        if node in rewriting.removed:
            continue
        expected = (op, target, map_arg(args, stand_in), map_arg(kwargs, stand_in))
        if node not in now or (node.op, node.target, node.args, dict(node.kwargs)) != expected:
            raise RewriteError(f"node {node.name} outside the matches was changed")
    strange = now - before.keys() - rewriting.inserted
    if strange:
        raise RewriteError(f"nodes that no replacement brought in: {sorted(n.name for n in strange)}")

"""Applying a pass: every match of every pattern, in pass order, becomes a call of the replacement.

Rules apply one after another, each to what the earlier ones left; calls of replacements are never matched. Of matches
that overlap, the one whose last operation comes first in the graph is replaced; of matches of the same operations, one
in the order of the pattern.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx
from torch.fx.node import map_arg

from passbench.contract import PassRule, Picked, picked_args
from passbench.matching.match import Match, Matcher
from passbench.matching.memory_effects import Memory
from passbench.matching.nearest_miss import Miss, nearest_miss, report
from passbench.matching.placement import Place, Refusal, place
from passbench.matching.trace_pattern import trace_pattern


class RewriteError(Exception):
    """The rewritten graph differs from the original outside the matches: a fault of PassBench, not of the pass."""


@dataclass(frozen=True)
class Applied:
    """What applying a pass did: matches by rule name in pass order, the nearest miss of every rule without one, and
    the calls of replacements that are in the graph now.

    A call's `meta["replaced"]` has the example values of the outputs that it stands for, None where there were none;
    `meta["single"]` says whether it gives one tensor instead of a tuple, `meta["rule"]` names its rule.
    """

    matches: dict[str, int]
    misses: tuple[Miss, ...]
    inserted: tuple[fx.Node, ...]

    @property
    def total(self) -> int:
        return sum(self.matches.values())

    def diagnosis(self) -> str:
        """Why rules did not match, nearest miss first, in at most ten lines."""
        return report(self.misses)


Accept = Callable[[PassRule, tuple], bool]
"""Whether a match is to be replaced, given the rule and the arguments that its replacement would get."""


def apply_pass(graph: fx.Graph, rules: list[PassRule], accept: Accept = lambda rule, arguments: True) -> Applied:
    """Rewrite `graph` in place. Matches that `accept` does not want stay as they are.

    Raises ContractError on a malformed rule, RewriteError if a check afterwards fails.
    """
    rewriting = _Rewriting(graph, accept)
    matches: dict[str, int] = {}
    misses: list[Miss] = []
    for rule in rules:
        pattern = trace_pattern(rule.pattern, rule.name)
        arguments = picked_args(rule)
        matcher = Matcher(pattern, graph, rewriting.taken)
        matches[rule.name], refusal = rewriting.replace_all(matcher, rule, arguments)
        if not matches[rule.name]:
            misses.append(nearest_miss(pattern, graph, rewriting.rule_of, refusal, matcher.left <= 0))
    rewriting.check()
    return Applied(matches, tuple(misses), tuple(rewriting.calls))


class _Rewriting:
    """A graph while it is rewritten: the nodes that were added and removed, and what stands for the removed ones."""

    def __init__(self, graph: fx.Graph, accept: Accept) -> None:
        self.graph, self._accept = graph, accept
        self.memory = Memory(graph)
        self.calls: list[fx.Node] = []
        self.rule_of: dict[fx.Node, str] = {}  # of what a replacement brought in: calls, and getitems of their results
        self.removed: set[fx.Node] = set()
        self.taken: set[fx.Node] = set()
        self.stands_for: dict[fx.Node, fx.Node] = {}
        self._before = {node: (node.op, node.target, node.args, dict(node.kwargs)) for node in graph.nodes}

    def replace_all(self, matcher: Matcher, rule: PassRule, arguments: tuple) -> tuple[int, Refusal | None]:
        """Replace all matches. Returns how many there were, and why the first that was not replaced was refused."""
        count, refusal = 0, None
        for root in matcher.roots():
            for match in matcher.at(root) if root not in self.removed else ():
                found = place(match, self.memory)
                matcher.left -= 1
                if isinstance(found, Place) and self._accept(rule, _resolve(arguments, match)):
                    ordered = matcher.in_order(match)
                    if ordered is not match and isinstance(again := place(ordered, self.memory), Place):
                        match, found = ordered, again
                    self._replace(match, found, rule, arguments)
                    count += 1
                    break
                refusal = refusal or (found if isinstance(found, Refusal) else None)
        return count, refusal

    def _replace(self, match: Match, where: Place, rule: PassRule, arguments: tuple) -> None:
        matched = sorted(match.inside)
        stands_for: dict[fx.Node, fx.Node] = {}
        with self.graph.inserting_before(where.before):
            call = self._insert(rule, rule.replacement, _resolve(arguments, match))
            call.meta["rule"] = rule.name
            call.meta["single"] = match.pattern.single
            call.meta["replaced"] = [old.meta.get("example_value") for old in match.outputs]
            for number, old in enumerate(match.outputs):
                if old in stands_for or all(user in match.inside for user in old.users):
                    continue
                new = call if match.pattern.single else self._insert(rule, operator.getitem, (call, number))
                old.replace_all_uses_with(new)
                stands_for[old] = new
        self.calls.append(call)
        for node in where.early:
            call.prepend(node)
        for node in reversed(matched):
            self.graph.erase_node(node)
        self.memory.replaced(call, matched, stands_for)
        self.stands_for |= stands_for
        self.removed.update(matched)
        self.taken.update(matched)

    def _insert(self, rule: PassRule, target: Callable, args: tuple) -> fx.Node:
        node = self.graph.call_function(target, args)
        self.rule_of[node] = rule.name
        self.taken.add(node)
        return node

    def check(self) -> None:
        """Raises RewriteError if the rewriting has changed anything outside of the matches.

        Nodes outside may read results of replacements instead of what was replaced. Their order must keep every read
        and write as it was.
        """
        self.graph.lint()
        kept = [node for node in self._before if node not in self.removed]
        now = [node for node in self.graph.nodes if node not in self.rule_of]
        if set(now) != set(kept):
            raise RewriteError(f"nodes came or went: {sorted(n.name for n in set(now) ^ set(kept))}")
        for node in kept:
            op, target, args, kwargs = self._before[node]
            expected = (op, target, map_arg(args, self._stand_in), map_arg(kwargs, self._stand_in))
            if (node.op, node.target, node.args, dict(node.kwargs)) != expected:
                raise RewriteError(f"node {node.name} outside the matches was changed")
        if now != kept and self.memory.epochs(now) != self.memory.epochs(kept):
            raise RewriteError("a node outside the matches was moved across a write to what it uses")

    def _stand_in(self, node: fx.Node) -> fx.Node:
        while node in self.stands_for:
            node = self.stands_for[node]
        return node


def _resolve(value: Any, match: Match) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_resolve(v, match) for v in value)
    if isinstance(value, dict):
        return {key: _resolve(v, match) for key, v in value.items()}
    return match.bound[value.name] if isinstance(value, Picked) else value

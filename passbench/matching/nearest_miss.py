"""The nearest miss of a pattern that matched nowhere: where most of it matches, and what differs there."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import fx

from passbench.matching.describe import describe, shortened, target_text, value_text
from passbench.matching.hints import Mismatch, call_mismatch, missing_user, other_value, target_mismatch
from passbench.matching.operations import operation_of, same_operation
from passbench.matching.placement import Refusal
from passbench.matching.same_call import compare, same_value
from passbench.matching.trace_pattern import Pattern

SEEDS = 300
"""How many pairs of equal operations are tried as starting points."""
LINES = 10


@dataclass(frozen=True)
class Miss:
    """Why a pattern has no match: `matched` of its operations do at the best place, `where` that is; `pattern_node` and
    `graph_node` differ there, or an outside reason stands against the match if all of them do."""

    pattern: Pattern
    matched: int
    where: fx.Node | None
    pattern_node: fx.Node
    graph_node: fx.Node | None
    expected: str
    found: str
    more: int = 0

    def lines(self) -> list[str]:
        """Three lines: how near it was, both nodes, expected and found."""
        total = len(self.pattern.ops)
        ops = "op matches" if total == 1 else "ops match"
        at = f" at {self.where.name}" if self.where is not None else ""
        more = f" (and {self.more} more difference{'s' * (self.more > 1)})" if self.more else ""
        node = describe(self.graph_node) if self.graph_node is not None else "none"
        return [
            f"pass {self.pattern.name}: no match; nearest{at}: {self.matched} of {total} pattern {ops}",
            f"  pattern: {source(self.pattern_node, self.pattern)}; graph: {node}",
            f"  expected {self.expected}, found {self.found}{more}",
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def source(node: fx.Node, pattern: Pattern) -> str:
    """A pattern's operation as its author wrote it, with the line."""
    text = node.meta.get("source") or describe(node)
    return f"`{shortened(text)}` ({pattern.name}.py:{node.meta['line']})" if node.meta.get("line") else f"`{text}`"


def report(misses: Iterable[Miss]) -> str:
    """The misses, nearest first, in at most ten lines."""
    ordered = sorted(misses, key=lambda miss: len(miss.pattern.ops) - miss.matched)
    shown = len(ordered) if 3 * len(ordered) <= LINES else (LINES - 1) // 3
    lines = [line for miss in ordered[:shown] for line in miss.lines()]
    if ordered[shown:]:
        names = ", ".join(miss.pattern.name for miss in ordered[shown:])
        lines.append(shortened(f"no match either: {names}"))
    return "\n".join(lines)


def nearest_miss(
    pattern: Pattern, graph: fx.Graph, rule_of: dict[fx.Node, str], refusal: Refusal | None, gave_up: bool
) -> Miss:
    """What stood in the way of a match of `pattern` in `graph`, which has been searched.

    `rule_of` names the rules whose replacements brought nodes in; `refusal` is why a complete match was refused.
    """
    if refusal is not None:
        p, g, expected, found = refusal
        where = g if g.op.startswith("call_") else None
        return Miss(pattern, len(pattern.ops), where, p, g, expected, found)
    if gave_up:
        expected = "a pattern whose parts are connected, or share inputs"
        return Miss(pattern, 0, None, pattern.ops[-1], None, expected, "too many combinations to try")
    best: _Alignment | None = None
    for p, g in _seeds(pattern, graph, rule_of):
        if best is None or best.found.get(p) is not g:
            alignment = _Alignment(pattern, rule_of).grow(p, g)
            best = alignment if best is None or alignment.score > best.score else best
    if best is None:
        return _nothing_alike(pattern, graph, rule_of)
    first, *others = best.mismatches or [Mismatch(pattern.ops[-1], None, "one more match", "none")]
    more = len({m.pattern_node for m in others} - {first.pattern_node})
    where = best.found.get(pattern.ops[-1]) or max(best.found.values())
    return Miss(pattern, len(best.agreeing), where, *first[:4], more)


def _calls(graph: fx.Graph, rule_of: dict[fx.Node, str]) -> list[fx.Node]:
    return [n for n in graph.nodes if n.op in ("call_function", "call_method") and n not in rule_of]


def _seeds(pattern: Pattern, graph: fx.Graph, rule_of: dict[fx.Node, str]) -> Iterator[tuple[fx.Node, fx.Node]]:
    """Pairs of operations that call the same, the rarest in the graph first."""
    alike: dict[Any, list[fx.Node]] = {}
    for node in _calls(graph, rule_of):
        alike.setdefault(operation_of(node), []).append(node)
    groups = [(p, alike.get(operation_of(p), [])) for p in reversed(pattern.ops)]
    left = SEEDS
    for p, nodes in sorted(groups, key=lambda group: len(group[1])):
        for g in nodes[:left]:
            yield p, g
        left -= min(left, len(nodes))


@dataclass
class _Alignment:
    """Pattern and graph laid side by side from one pair of nodes: what is found for which node, and what differs."""

    pattern: Pattern
    rule_of: dict[fx.Node, str]
    found: dict[fx.Node, fx.Node] = field(default_factory=dict)
    bound: dict[str, Any] = field(default_factory=dict)
    mismatches: list[Mismatch] = field(default_factory=list)

    @property
    def agreeing(self) -> set[fx.Node]:
        return self.found.keys() - {m.pattern_node for m in self.mismatches}

    @property
    def score(self) -> tuple[int, int]:
        return len(self.agreeing), len(self.found)

    def grow(self, p: fx.Node, g: fx.Node) -> "_Alignment":
        self.found[p] = g
        queue = [p]
        for p in queue:
            g = self.found[p]
            pairs, difference = compare(p, g)
            if difference is not None:
                self.mismatches.append(call_mismatch(p, g, difference))
            for inner, value in pairs:
                self._meet(inner, value, p, queue)
            for user in p.users:
                if user in self.pattern.ops and user not in self.found:
                    self._rise(user, g, queue)
        missing = [u for p in self.found for u in p.users if u in self.pattern.ops and u not in self.found]
        for user in dict.fromkeys(missing):
            near = next(p for p in user.all_input_nodes if p in self.found)
            self.mismatches.append(missing_user(user, self.found[near], self.rule_of))
        return self

    def _meet(self, inner: fx.Node, value: Any, p: fx.Node, queue: list[fx.Node]) -> None:
        """`inner`, which `p` reads, has `value` for counterpart."""
        g = self.found[p]
        if inner.op == "placeholder":
            before = self.bound.setdefault(str(inner.target), value)
            if not same_value(before, value):
                expected = f"{inner.target} to be one value wherever the pattern reads it, {value_text(before)}"
                self.mismatches.append(Mismatch(p, g, expected, value_text(value)))
        elif not isinstance(value, fx.Node):
            pass  # the comparison of the calls has said so
        elif inner in self.found:
            if self.found[inner] is not value:
                self.mismatches.append(other_value(inner, p, self.found[inner], g, value))
        elif same_operation(inner, value) and value not in self.rule_of:
            self.found[inner] = value
            queue.append(inner)
        else:
            self.mismatches.append(target_mismatch(inner, value, p, g, self.rule_of))

    def _rise(self, user: fx.Node, g: fx.Node, queue: list[fx.Node]) -> None:
        """Find the counterpart of `user`, which reads what `g` is the counterpart of."""
        taken = set(self.found.values())
        alike = [n for n in g.users if same_operation(user, n) and n not in taken and n not in self.rule_of]
        if alike:
            self.found[user] = next((n for n in alike if compare(user, n).difference is None), alike[0])
            queue.append(user)


def _nothing_alike(pattern: Pattern, graph: fx.Graph, rule_of: dict[fx.Node, str]) -> Miss:
    """The miss where the graph calls nothing that the pattern calls."""
    calls = _calls(graph, rule_of)
    for p in reversed(pattern.ops):
        for g in calls:
            mismatch = target_mismatch(p, g, None, None, rule_of)
            if mismatch.alike:
                return Miss(pattern, 0, g, *mismatch[:4])
    if len(calls) == 1:
        return Miss(pattern, 0, calls[0], *target_mismatch(pattern.ops[-1], calls[0], None, None, rule_of)[:4])
    names = ", ".join(dict.fromkeys(map(target_text, calls)))
    found = shortened(f"calls of {names}") if calls else "no call that is not a replacement's"
    return Miss(pattern, 0, None, pattern.ops[-1], None, target_text(pattern.ops[-1]), found)

"""Finding a pattern in the fx graph of a variant.

A match is exact: the same targets, the same constants, arguments in the same places, devices aside. A parameter of
the pattern stands for any value, a constant too. Nothing is assumed to commute.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx

from passbench.opsig import op_name, signatures, spread_sizes
from passbench.pattern import Pattern

_DEVICE = re.compile(r"(cuda|cpu)(:\d+)?")


@dataclass
class Match:
    """Pattern operation → graph node, and parameter name → the graph's value (a node or a constant).

    `progress` counts agreements on the way, to tell the nearest miss.
    """

    pattern: Pattern
    nodes: dict[fx.Node, fx.Node] = field(default_factory=dict)
    bound: dict[str, Any] = field(default_factory=dict)
    progress: int = 0

    def copy(self) -> "Match":
        return Match(self.pattern, dict(self.nodes), dict(self.bound), self.progress)


@dataclass(frozen=True)
class Miss:
    """Where an attempt at a match ended: how many nodes had matched, and what was expected and found."""

    progress: int
    matched: int
    pattern: Pattern
    pattern_node: fx.Node
    graph_node: fx.Node | None
    expected: str
    found: str

    def __str__(self) -> str:
        at = f"graph node {describe(self.graph_node)}" if self.graph_node is not None else "the graph"
        return (
            f"pass {self.pattern.name}: no match; nearest miss after {self.matched} of {len(self.pattern.ops)} pattern "
            f"nodes: pattern node {describe(self.pattern_node)} against {at}: expected {self.expected}, "
            f"found {self.found}"
        )


class Matcher:
    """Searches one graph for one pattern and remembers the nearest miss."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.miss: Miss | None = None
        inside = set(pattern.ops)
        # Every operation leads to one that no other operation uses; matching those matches them all.
        self._anchors = [n for n in pattern.ops if not any(user in inside for user in n.users)][::-1]

    def at(self, node: fx.Node, allowed: list[fx.Node]) -> Iterator[Match]:
        """Matches whose last anchor is `node` and that lie within `allowed`."""
        yield from self._extend(Match(self.pattern), 0, [node], allowed)

    def _extend(self, match: Match, anchor: int, candidates: list[fx.Node], allowed: list[fx.Node]) -> Iterator[Match]:
        if anchor == len(self._anchors):
            yield match
            return
        for node in candidates:
            attempt = match.copy()
            if self._node(self._anchors[anchor], node, attempt, set(allowed)):
                yield from self._extend(attempt, anchor + 1, allowed, allowed)

    def note(self, match: Match, pattern_node: fx.Node, node: fx.Node, expected: str, found: str) -> None:
        """Remember a miss if it came further than the nearest so far."""
        if self.miss is None or match.progress > self.miss.progress:
            self.miss = Miss(match.progress, len(match.nodes), self.pattern, pattern_node, node, expected, found)

    def nearest_miss(self, graph: fx.Graph) -> Miss:
        """What stood in the way of a match in a graph that has been searched."""
        if self.miss is not None and self.miss.progress > 0:
            return self.miss
        calls = dict.fromkeys(target_text(n) for n in graph.nodes if n.op in ("call_function", "call_method"))
        expected = f"a call of {target_text(self._anchors[0])}"
        return Miss(0, 0, self.pattern, self._anchors[0], None, expected, "calls of " + ", ".join(calls))

    def _node(self, p: fx.Node, g: fx.Node, match: Match, allowed: set[fx.Node]) -> bool:
        if p in match.nodes:
            if match.nodes[p] is not g:
                self.note(match, p, g, f"the same value as before, {match.nodes[p].name}", g.name)
                return False
            return True
        if g not in allowed or g in match.nodes.values():
            found = "an input of the graph" if g.op == "placeholder" else "a node that is matched already"
            self.note(match, p, g, describe(p), found)
            return False
        if p.op != g.op or not _same_target(p.target, g.target):
            self.note(match, p, g, target_text(p), target_text(g))
            return False
        match.progress += 1
        forms = _comparable(p, g)
        if forms is None:
            self.note(match, p, g, f"arguments as in {describe(p)}", describe(g))
            return False
        if not self._value(*forms, p, g, match, allowed):
            return False
        match.nodes[p] = g
        match.progress += 1
        return True

    def _value(self, p: Any, g: Any, at: fx.Node, g_at: fx.Node, match: Match, allowed: set[fx.Node]) -> bool:
        if isinstance(p, fx.Node):
            if p.op == "placeholder":
                return self._parameter(p, g, at, g_at, match)
            if isinstance(g, fx.Node):
                return self._node(p, g, match, allowed)
        elif isinstance(p, tuple | list) and isinstance(g, tuple | list) and len(p) == len(g):
            return all(self._value(a, b, at, g_at, match, allowed) for a, b in zip(p, g, strict=True))
        elif isinstance(p, dict) and isinstance(g, dict) and p.keys() == g.keys():
            return all(self._value(p[k], g[k], at, g_at, match, allowed) for k in p)
        elif isinstance(p, slice) and isinstance(g, slice):
            parts = ((p.start, g.start), (p.stop, g.stop), (p.step, g.step))
            return all(self._value(a, b, at, g_at, match, allowed) for a, b in parts)
        elif same_constant(p, g):
            return True
        self.note(match, at, g_at, f"argument {_text(p)}", _text(g))
        return False

    def _parameter(self, p: fx.Node, g: Any, at: fx.Node, g_at: fx.Node, match: Match) -> bool:
        name = str(p.target)
        if name not in match.bound:
            match.bound[name] = g
            return True
        before = match.bound[name]
        same = before is g if isinstance(before, fx.Node) or isinstance(g, fx.Node) else same_constant(before, g)
        if not same:
            self.note(match, at, g_at, f"{name} to be {_text(before)}, as elsewhere", _text(g))
        return same


def _same_target(p: Any, g: Any) -> bool:
    return p == g if isinstance(p, str) else p is g


def _comparable(p: fx.Node, g: fx.Node) -> tuple[Any, Any] | None:
    """The arguments of both nodes in one form: as written, or by parameter name where they are written differently."""
    p_args, g_args = spread_sizes(p), spread_sizes(g)
    if len(p_args) == len(g_args) and p.kwargs.keys() == g.kwargs.keys():
        return (p_args, dict(p.kwargs)), (g_args, dict(g.kwargs))
    for signature in signatures(g):
        forms = signature.bind(p_args, dict(p.kwargs)), signature.bind(g_args, dict(g.kwargs))
        if None not in forms:
            return forms
    return None


def same_constant(a: Any, b: Any) -> bool:
    """Whether two constants are the same: type and value; any device equals any other, a list a tuple."""
    if _is_device(a) and _is_device(b):
        return True
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(same_constant(x, y) for x, y in zip(a, b, strict=True))
    if type(a) is not type(b):
        return False
    return a == b or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and _DEVICE.fullmatch(value) is not None)


def target_text(node: fx.Node) -> str:
    """What a node calls, as a reader writes it: `torch.relu`, `.view`."""
    if node.op == "call_method":
        return f".{node.target}()"
    if node.op != "call_function":
        return "an input of the graph"
    module = (getattr(node.target, "__module__", None) or "torch").removeprefix("_")
    return f"{module}.{op_name(node)}"


def describe(node: fx.Node) -> str:
    """A node on one line: `tmp_0 = torch.add(in_0, in_1)`."""
    if node.op in ("placeholder", "output"):
        return node.name
    arguments = [_text(a) for a in node.args] + [f"{k}={_text(v)}" for k, v in node.kwargs.items()]
    return f"{node.name} = {target_text(node)}({', '.join(arguments)})"


def _text(value: Any) -> str:
    if isinstance(value, fx.Node):
        return value.name
    if isinstance(value, tuple | list):
        return "(" + ", ".join(_text(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    return repr(value)

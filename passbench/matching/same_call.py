"""Comparing one call of a pattern with one call of a graph, argument by argument."""

import math
import re
from typing import Any, NamedTuple

import torch
from torch import fx

from passbench.matching.operations import bindings

_DEVICE = re.compile(r"(cuda|cpu)(:\d+)?")


class Difference(NamedTuple):
    """Where two calls of the same operation differ: `name` of the argument, or its position; `expected` in the pattern,
    `found` in the graph."""

    name: str | int | None
    expected: Any
    found: Any


class CallComparison(NamedTuple):
    """`pairs` of values that must match for the calls to: a pattern's node and what the graph has in its place.

    `difference` is the first that no such match can mend, or None.
    """

    pairs: list[tuple[fx.Node, Any]]
    difference: Difference | None


def compare(p: fx.Node, g: fx.Node) -> CallComparison:
    """Compare the arguments of two calls of the same operation."""
    nearest = None
    for expected, found in bindings(p, g):
        result = CallComparison([], None)
        for name in expected:
            difference = _values(name, expected[name], found[name], result.pairs)
            result = result._replace(difference=result.difference or difference)
        if result.difference is None:
            return result
        nearest = nearest or result
    return nearest or CallComparison([], Difference(None, p, g))


def _values(name: str | int, p: Any, g: Any, pairs: list) -> Difference | None:
    if isinstance(p, fx.Node):
        pairs.append((p, g))
        return None if p.op == "placeholder" or isinstance(g, fx.Node) else Difference(name, p, g)
    if isinstance(p, tuple | list) and isinstance(g, tuple | list):
        if len(p) != len(g):
            return Difference(name, p, g)
        inner = [_values(name, a, b, pairs) for a, b in zip(p, g, strict=True)]
    elif isinstance(p, dict) and isinstance(g, dict):
        if p.keys() != g.keys():
            return Difference(name, p, g)
        inner = [_values(name, p[k], g[k], pairs) for k in p]
    elif isinstance(p, slice) and isinstance(g, slice):
        inner = [_values(name, a, b, pairs) for a, b in zip(_parts(p), _parts(g), strict=True)]
    else:
        return None if same_constant(p, g) else Difference(name, p, g)
    return next((Difference(name, p, g) for d in inner if d is not None), None)


def _parts(value: slice) -> tuple:
    return value.start, value.stop, value.step


def same_value(a: Any, b: Any) -> bool:
    """Whether two values of a graph are the same: one node, or equal constants."""
    if isinstance(a, fx.Node) or isinstance(b, fx.Node):
        return a is b
    return same_constant(a, b)


def same_constant(a: Any, b: Any) -> bool:
    """Whether two constants are the same: type and value; any device equals any other, a list a tuple."""
    if _is_device(a) and _is_device(b):
        return True
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(same_value(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, slice) and isinstance(b, slice):
        return all(same_value(x, y) for x, y in zip(_parts(a), _parts(b), strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same_value(a[k], b[k]) for k in a)
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device) or (isinstance(value, str) and _DEVICE.fullmatch(value) is not None)

"""Symbolic sizes as graphs: a part that stands in an expression many times is visited once.

Sympy and torch walk an expression as a tree. The sizes behind a row of padded convolutions hold each other many times,
so the tree is hundreds of times as large as its different parts: such walks were two thirds of the capture of a pruned
EfficientNet. What they find is the same either way.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from sympy.core import basic, sorting
from sympy.core.basic import Basic
from torch.fx.experimental import symbolic_shapes
from torch.utils._sympy import interp, value_ranges

_interpret = interp.sympy_interp
_free_symbols = Basic.free_symbols.fget
_has = Basic._has
_xreplace = Basic._xreplace
_fast_expand = symbolic_shapes._fast_expand
_node_count = sorting._node_count


@contextmanager
def visited_once() -> Iterator[None]:
    """Inside the `with` block sympy's symbols, atoms, `has` and `xreplace`, and torch's expansion and bounds, visit
    each different part of an expression once."""
    with ExitStack() as stack:
        for owner, name, new in (*_walks(), *_of_whole_calls()):
            stack.enter_context(patch.object(owner, name, new))
        yield


def _walks() -> Iterator[tuple[Any, str, Any]]:
    """What to put in the place of walks whose result depends on the expression alone: it is kept."""
    symbols: dict[Basic, set[Basic]] = {}
    expanded: dict[Basic, Basic | None] = {}  # None: nothing to expand
    counts: dict[Basic, int] = {}

    def free_symbols(self: Basic) -> set[Basic]:
        if not self.args:
            return _free_symbols(self)
        if self not in symbols:
            symbols[self] = _free_symbols(self)
        return symbols[self].copy()

    def fast_expand(expression: Any) -> Any:
        if not expression.args:
            return expression
        if expression not in expanded:
            found = _fast_expand(expression)
            expanded[expression] = None if found is expression else found
        found = expanded[expression]
        return expression if found is None else found  # torch makes anew what holds a part that is another object

    def node_count(expression: Any) -> int:
        if not getattr(expression, "args", ()):
            return _node_count(expression)
        if expression not in counts:
            counts[expression] = _node_count(expression)
        return counts[expression]

    def atoms(self: Basic, *types: Any) -> set[Basic]:
        kinds = tuple(each if isinstance(each, type) else type(each) for each in types)
        return {part for part in _parts(self) if (isinstance(part, kinds) if kinds else not part.args)}

    def has(self: Basic, walk: Any, *patterns: Any) -> Any:
        return _has(self, _parts if walk is basic._preorder_traversal else walk, *patterns)

    yield Basic, "free_symbols", property(free_symbols)
    yield symbolic_shapes, "_fast_expand", fast_expand
    yield sorting, "_node_count", node_count
    yield Basic, "atoms", atoms
    yield Basic, "_has", has


def _of_whole_calls() -> Iterator[tuple[Any, str, Any]]:
    """What to put in the place of walks that depend on more than the expression: parts are kept for one call."""
    replaced: dict[Basic, tuple[Any, bool]] | None = None
    bounds: dict[Any, Any] | None = None

    def xreplace_part(self: Basic, rule: Any) -> tuple[Any, bool]:
        if replaced is None or not self.args:
            return _xreplace(self, rule)
        if self not in replaced:
            replaced[self] = _xreplace(self, rule)
        value, changed = replaced[self]
        return (value, True) if changed else (self, False)

    def xreplace(self: Basic, rule: Any) -> Any:
        nonlocal replaced
        before, replaced = replaced, {}
        try:
            return self._xreplace(rule)[0]
        finally:
            replaced = before

    def interpret_part(analysis: Any, env: Any, expression: Any, **options: Any) -> Any:
        if bounds is None or not expression.args:
            return _interpret(analysis, env, expression, **options)
        if expression not in bounds:
            bounds[expression] = _interpret(analysis, env, expression, **options)
        return bounds[expression]

    def interpret(analysis: Any, env: Any, expression: Any, **options: Any) -> Any:
        nonlocal bounds
        before, bounds = bounds, {}
        try:
            return interpret_part(analysis, env, expression, **options)
        finally:
            bounds = before

    yield Basic, "_xreplace", xreplace_part
    yield Basic, "xreplace", xreplace
    yield interp, "sympy_interp", interpret_part
    yield value_ranges, "sympy_interp", interpret


def _parts(expression: Any) -> Iterator[Any]:
    """The different parts of an expression, each where sympy's walk comes to it first."""
    seen, left = set(), [expression]
    while left:
        part = left.pop()
        if part not in seen:
            seen.add(part)
            yield part
            if isinstance(part, Basic):
                left.extend(reversed(part.args))

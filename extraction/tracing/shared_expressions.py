"""Bounds of symbolic sizes: a part of an expression that stands in it many times is bounded once.

Torch bounds an expression by walking it as a tree. The sizes behind a row of padded convolutions hold each other many
times, so the tree is hundreds of times as large as its different parts: half of the capture of a ResNet that ends in
group norms.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch.utils._sympy import interp, value_ranges

_interpret = interp.sympy_interp


@contextmanager
def bounded_once() -> Iterator[None]:
    """`torch.utils._sympy.value_ranges.bound_sympy` does so inside the `with` block."""
    known: dict[Any, Any] | None = None

    def interpret(analysis: Any, env: Any, expression: Any, **options: Any) -> Any:
        if known is None or not expression.args:
            return _interpret(analysis, env, expression, **options)
        if expression not in known:
            known[expression] = _interpret(analysis, env, expression, **options)
        return known[expression]

    def whole(analysis: Any, env: Any, expression: Any, **options: Any) -> Any:
        """An expression with ranges of its own: nothing is known of another one's parts."""
        nonlocal known
        before, known = known, {}
        try:
            return interpret(analysis, env, expression, **options)
        finally:
            known = before

    with patch.object(interp, "sympy_interp", interpret), patch.object(value_ranges, "sympy_interp", whole):
        yield

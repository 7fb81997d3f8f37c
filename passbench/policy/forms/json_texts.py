"""`json.loads(TEXT)` of a text that the source has, as what it makes: a new dict or list each time."""

import ast
import json
import math
from collections.abc import Callable, Mapping

_DEEPEST = 32
"""Texts in which more lists and dicts stand within each other stay calls."""


class JsonTexts:
    """Knows the texts that variables at the top of a module are. Each is written out once, so that the tree stays in
    proportion to the text."""

    def __init__(self, tree: ast.Module, dotted: Callable[[ast.expr], str | None], bound: Mapping[str, int]) -> None:
        self._dotted = dotted
        self._texts: dict[str, ast.Constant] = {}
        for statement in tree.body:
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str()) as text):
                    if bound[name] == 1:
                        self._texts[name] = text

    def written(self, node: ast.Call) -> ast.expr | None:
        """What a call makes, written out; None for other calls, and for what is no JSON."""
        if self._dotted(node.func) != "json.loads" or len(node.args) != 1 or node.keywords:
            return None
        given = node.args[0]
        text = self._texts.pop(given.id, None) if isinstance(given, ast.Name) else given
        if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
            return None
        try:
            found = ast.copy_location(_display(json.loads(text.value), 0), node)
            return ast.fix_missing_locations(found)
        except (ValueError, RecursionError):
            return None


def _display(value: object, depth: int) -> ast.expr:
    """An expression of this value. Raises ValueError for what has none, such as NaN."""
    if depth > _DEEPEST:
        raise ValueError("too deep")
    if isinstance(value, dict):
        return ast.Dict([ast.Constant(key) for key in value], [_display(v, depth + 1) for v in value.values()])
    if isinstance(value, list):
        return ast.List([_display(v, depth + 1) for v in value], ast.Load())
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("no number")
    return ast.Constant(value)

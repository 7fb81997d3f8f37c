"""Which variables of a pass are instances of its own classes, whatever else happens: for members whose names objects of
torch, Triton and PassBench have, too."""

import ast
from collections import Counter
from collections.abc import Callable

from passbench.policy.nodes import walk
from passbench.policy.scopes import parameters


def made_once(
    place: ast.Module | ast.FunctionDef, own_class: Callable[[ast.expr], ast.ClassDef | None]
) -> dict[str, ast.ClassDef]:
    """Variables that are bound once in a module or a function, by `NAME = CLASS(…)`, and their classes.

    A name that is bound in a function inside counts, too: it may be this one.
    """
    bound: Counter[str] = Counter()
    made: dict[str, ast.ClassDef] = {}
    for node in walk(place):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound[node.id] += 1
        elif isinstance(node, ast.FunctionDef | ast.Lambda):
            bound.update(p.arg for p in parameters(node))
        for key in ("name", "asname", "rest"):
            if isinstance(name := getattr(node, key, None), str):
                bound[name.partition(".")[0]] += 1
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        own = own_class(node.value.func) if isinstance(target, ast.Name) and isinstance(node.value, ast.Call) else None
        if own is not None:
            made[target.id] = own
    return {name: own for name, own in made.items() if bound[name] == 1}

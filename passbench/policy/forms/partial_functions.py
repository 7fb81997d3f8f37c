"""`half = functools.partial(div, 2)` at the top of a module, and `half(n)`, as `div(2, n)`.

Only where nothing but calls in the same module names `half`. What it is given stands for one thing alone: constants,
attributes, and names that are bound once.

Where more names it, or it stands in a function, it is written as a function of what `div` gets besides, where `div` is
a plain function of the module: what it is given are defaults, which are evaluated where the partial function is made.
"""

import ast
import copy
from collections import Counter
from collections.abc import Iterator, Mapping

from passbench.policy.forms.unused_functions import imported_alone
from passbench.policy.nodes import bound_names, placed, walk, written_name

_MOST_COPIED = 4000
"""Nodes by which the modules of a pass grow at most."""
_MOST_WRITTEN = 20_000
"""Parameters of all functions that are written for partial ones, and decorators of what these call."""


def write_partials(trees: Mapping[str, ast.Module]) -> None:
    """Write such calls of all modules of a pass, in place, and leave the variables out."""
    named = {name: set(_named_of_others(tree)) for name, tree in trees.items()}
    by_modules = Counter(one for found in named.values() for one in found)
    left = _MOST_COPIED
    for name, tree in trees.items():
        own = set() if name in named[name] else named[name]
        calls = _calls(tree, {k: call for k, call in _made(tree).items() if by_modules[k] == (k in own)})
        written: set[ast.expr] = set()
        for call, found in calls:
            left -= len(found) * len(walk(call))
            if left < 0:
                break
            for one in found:
                given = {keyword.arg for keyword in one.keywords}
                whole = copy.deepcopy(call)
                one.func = whole.args[0]
                one.args = [*whole.args[1:], *one.args]
                one.keywords = [*(k for k in whole.keywords if k.arg not in given), *one.keywords]
            written.add(call)
        tree.body = [s for s in tree.body if not (isinstance(s, ast.Assign) and s.value in written)]
    left = _MOST_WRITTEN
    for tree in trees.values():
        left = _write_as_functions(tree, left)
    for tree in trees.values():  # `passbench.policy.nodes` lists anew what is below each node
        for node in ast.walk(tree):
            node.__dict__.pop("_children", None)


def _named_of_others(tree: ast.Module) -> Iterator[str]:
    """Names that a module has, or imports, of others: of its own too, where it imports itself by that."""
    for node in walk(tree):
        if isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.name.rpartition(".")[2] for alias in node.names)
            yield (getattr(node, "module", None) or "").rpartition(".")[2]


def _makers(tree: ast.Module) -> set[str]:
    """`functools.partial` as a module may write it, by names that imports alone bind: those in functions, too, which
    say nothing of what a `def partial` at the top does."""
    alone = imported_alone(tree)
    found = {name for name, full in alone.items() if full == "functools.partial"}
    return found | {f"{name}.partial" for name, full in alone.items() if full == "functools"}


def _made(tree: ast.Module) -> dict[str, ast.Call]:
    """Variables at the top of a module that are a partial function and nothing else, with the calls that make them."""
    bound, makers = bound_names(tree), _makers(tree)
    found: dict[str, ast.Call] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[_, *_]) as call) if bound[name] == 1:
                parts = [*call.args, *(keyword.value for keyword in call.keywords)]
                named = all(keyword.arg is not None for keyword in call.keywords)
                if named and written_name(call.func) in makers and all(_is_fixed(part, bound) for part in parts):
                    found[name] = call
    return found


def _is_fixed(node: ast.expr, bound: Counter[str]) -> bool:
    """Whether an expression means the same wherever it stands in a module."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and bound[node.id] == 1)


def _calls(tree: ast.Module, made: Mapping[str, ast.Call]) -> list[tuple[ast.Call, list[ast.Call]]]:
    """What makes each of these, and its calls, where nothing else names it, and no function under `jit` does."""
    named: Counter[str] = Counter()
    found: dict[str, list[ast.Call]] = {}
    for node in walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in made:
            named[node.id] += 1
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in made:
            if all(keyword.arg is not None for keyword in node.keywords):
                found.setdefault(node.func.id, []).append(node)
        elif isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list):
            within = (n.id for statement in node.body for n in walk(statement) if isinstance(n, ast.Name))
            named.update(n for n in within if n in made)
    return [(made[name], calls) for name, calls in found.items() if len(calls) == named[name]]


def _write_as_functions(tree: ast.Module, left: int) -> int:
    """Write `NAME = functools.partial(f, …)` as `def NAME(…): return f(…)`, in place, at the top of a module and in its
    functions; and a partial function in a list or dict as a lambda. `left`: parameters that may be written for them;
    those that are left then are returned."""
    bound, makers = bound_names(tree), _makers(tree)
    known = {s.name: s for s in tree.body if isinstance(s, ast.FunctionDef) and bound[s.name] == 1}

    def written(call: ast.Call, of: ast.FunctionDef) -> ast.Lambda | None:
        nonlocal left
        given = of.args
        left -= sum(map(len, (given.posonlyargs, given.args, given.kwonlyargs, of.decorator_list)))
        return _as_lambda(call, of) if left >= 0 else None

    places: list[tuple[list[ast.stmt], Counter[str], bool]] = [(tree.body, bound, True)] if makers else []
    while places:
        block, of_scope, at_top = places.pop()
        for number, statement in enumerate(block):
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[ast.Name(id=of), *_]) as call) if (
                    (of_scope[name] == 1 or not at_top) and of in known and written_name(call.func) in makers
                ):
                    made = written(call, known[of])
                    if made is not None and of_scope[name] > 1:
                        statement.value = placed(made, call)
                    elif made is not None:
                        function = ast.FunctionDef(name, made.args, [ast.Return(made.body)], [], None, None)
                        block[number] = placed(function, statement)
                        known |= {name: function} if at_top else {}
                    continue
            inner = bound_names(statement) if isinstance(statement, ast.FunctionDef) else of_scope
            if isinstance(statement, ast.FunctionDef) or not at_top:
                blocks = (getattr(statement, key, None) for key in ("body", "orelse", "finalbody"))
                places += [(one, inner, False) for one in blocks if isinstance(one, list)]
    displays = (n for n in walk(tree) if isinstance(n, ast.Dict | ast.List | ast.Tuple)) if makers else ()
    for display in displays:
        items = display.values if isinstance(display, ast.Dict) else display.elts
        for number, item in enumerate(items):
            match item:
                case ast.Call(args=[ast.Name(id=of), *_]) if of in known and written_name(item.func) in makers:
                    made = written(item, known[of])
                    items[number] = item if made is None else placed(made, item)
    return left


def _as_lambda(call: ast.Call, of: ast.FunctionDef) -> ast.Lambda | None:
    """A partial function as a lambda; None where the source does not say what it gets besides."""
    a = of.args
    order, given = [*a.posonlyargs, *a.args], call.args[1:]
    named = {k.arg: k.value for k in call.keywords}
    late = {p.arg for p in (*order[len(given) :], *a.kwonlyargs)} - {p.arg for p in a.posonlyargs}
    plain = a.vararg is None and a.kwarg is None and all(written_name(d) == "torch.fx.wrap" for d in of.decorator_list)
    if (
        not plain
        or len(given) > len(order)
        or not named.keys() <= late
        or any(isinstance(v, ast.Starred) for v in given)
    ):
        return None
    defaults = {p.arg: d for p, d in zip(order[::-1], a.defaults[::-1], strict=False)}
    defaults |= {p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None}
    rest = order[len(given) :]
    first_named = next((n for n, p in enumerate(rest) if p.arg in named), len(rest))
    in_order, by_name = rest[:first_named], [*rest[first_named:], *a.kwonlyargs]
    if of.name in {p.arg for p in (*in_order, *by_name)}:
        return None
    if not all(
        isinstance(defaults.get(p.arg, _NOTHING), ast.Constant) for p in rest + a.kwonlyargs if p.arg not in named
    ):
        return None
    fixed = [f"given {number} to {of.name}" for number in range(len(given))]  # names that no source can spell
    values = {p.arg: named.get(p.arg, defaults.get(p.arg)) for p in by_name} | dict(zip(fixed, given, strict=True))
    arguments = ast.arguments(
        [ast.arg(p.arg) for p in in_order if p in a.posonlyargs],
        [ast.arg(p.arg) for p in in_order if p not in a.posonlyargs],
        None,
        [ast.arg(one) for one in values],
        list(values.values()),
        None,
        [defaults[p.arg] for p in in_order if p.arg in defaults],
    )
    by_place = [ast.Name(one, ast.Load()) for one in (*fixed, *(p.arg for p in in_order))]
    keywords = [ast.keyword(p.arg, ast.Name(p.arg, ast.Load())) for p in by_name]
    called = ast.Call(ast.Name(of.name, ast.Load()), by_place, keywords)
    return ast.Lambda(arguments, called)


_NOTHING = ast.Constant(None)
"""Stands for a parameter without a default."""

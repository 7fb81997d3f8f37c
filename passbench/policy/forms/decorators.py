"""Decorators of a pass, written as what Python makes of them, so that the rest of the policy knows them already.

A dict that only decorators are given stands where it is given. A function under a decorator of the pass is a variable
that holds what the decorator returns.
"""

import ast
import itertools
from collections import Counter
from collections.abc import Callable, Mapping

from passbench.policy.nodes import quoted

_MOST_COPIED = 4000
"""Nodes by which a module grows at most where several decorators share a dict, or kernels a decorator."""
_OF_KERNELS = frozenset(("triton.autotune", "triton.heuristics"))
_WITHOUT_ORDER = frozenset(("torch.fx.wrap", "torch.no_grad"))
"""Decorators that mean the same above and below another."""
_WITH_OPTIONS = frozenset(("dataclasses.dataclass", "triton.jit"))
"""Decorators whose options are given by name: what stands first is decorated in place of what stands below."""
_WITH_NUMBERS = frozenset(("functools.lru_cache", "torch.inference_mode"))
"""Decorators that decorate what they are given where that can be called."""
_AS_THEY_ARE = frozenset(
    """torch.fx.wrap torch.no_grad functools.cache contextlib.contextmanager enum.unique typing.final
    typing.runtime_checkable""".split()
)
"""Decorators that decorate whatever they are given."""
_WITH_RULES = ("pattern", "replacement_args", "replacement_func")


def inline_decorator_tables(tree: ast.Module) -> None:
    """`@triton.heuristics(HEURISTICS)` as `@triton.heuristics({…})`, where `HEURISTICS = {…}` is bound once at the top
    of the module and decorators alone read it. Call it before anything walks the tree."""
    written = {
        s.targets[0].id: s
        for s in tree.body
        if isinstance(s, ast.Assign)
        and len(s.targets) == 1
        and isinstance(s.targets[0], ast.Name)
        and isinstance(s.value, ast.Dict)
        and any(isinstance(value, ast.Lambda | ast.Name) for value in s.value.values)
    }
    if not written:
        return
    loads: Counter[str] = Counter()
    stores: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (loads if isinstance(node.ctx, ast.Load) else stores)[node.id] += 1
        elif not isinstance(node, ast.keyword):
            shared = getattr(node, "names", ())
            stores.update(n for n in shared if isinstance(n, str))
            stores.update(
                n for key in ("name", "asname", "arg", "rest") if isinstance(n := getattr(node, key, None), str)
            )
    tables = {name: s for name, s in written.items() if stores[name] == 1}
    places: dict[str, list[tuple[list, int] | ast.keyword]] = {name: [] for name in tables}
    for function in tree.body if tables else ():
        for call in function.decorator_list if isinstance(function, ast.FunctionDef) else ():
            if not isinstance(call, ast.Call):
                continue
            for number, value in enumerate(call.args):
                if isinstance(value, ast.Name) and value.id in tables:
                    places[value.id].append((call.args, number))
            for keyword in call.keywords:
                if isinstance(keyword.value, ast.Name) and keyword.value.id in tables:
                    places[keyword.value.id].append(keyword)
    for name, found in places.items():
        if not found or len(found) != loads[name]:
            continue
        if (len(found) - 1) * sum(1 for _ in ast.walk(tables[name])) > _MOST_COPIED:
            continue  # the tree stays in proportion to the text
        for place in found:
            if isinstance(place, ast.keyword):
                place.value = tables[name].value
            else:
                place[0][place[1]] = tables[name].value
        tree.body.remove(tables[name])


def write_at_kernels(
    tree: ast.Module,
    dotted: Callable[[ast.expr], str | None],
    bound: Counter[str],
    is_kernel: Callable[[ast.FunctionDef], bool],
) -> None:
    """`tune = triton.autotune(…)` and `@tune` as `@triton.autotune(…)`, where `tune` is bound once, at the top of the
    module, and nothing but kernels below it reads it, as decorators. `bound` says how often each name is bound."""
    made: dict[str, ast.Assign] = {}
    uses: Counter[str] = Counter()
    places: dict[str, list[tuple[ast.FunctionDef, int]]] = {}
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call()) if bound[name] == 1:
                if dotted(statement.value.func) in _OF_KERNELS:
                    made[name] = statement
            case ast.FunctionDef() if is_kernel(statement):
                for number, decorator in enumerate(statement.decorator_list):
                    if isinstance(decorator, ast.Name) and decorator.id in made:
                        places.setdefault(decorator.id, []).append((statement, number))
    if not places:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            uses[node.id] += 1
    written: set[ast.stmt] = set()
    left = _MOST_COPIED
    for name, found in places.items():
        size = (len(found) - 1) * sum(1 for _ in ast.walk(made[name]))
        if len(found) != uses[name] or size > left:
            continue
        left -= size
        call = made[name].value
        for kernel, number in found:
            above = ast.Call(call.func, call.args, call.keywords)
            kernel.decorator_list[number] = ast.copy_location(above, kernel.decorator_list[number])
            kernel.__dict__.pop("_children", None)
        written.add(made[name])
    tree.body = [statement for statement in tree.body if statement not in written]


def wrap_in_place(tree: ast.Module, dotted: Callable[[ast.expr], str | None]) -> None:
    """`f = torch.fx.wrap(f)` at the top of a module as `torch.fx.wrap(f)`, which returns what it gets, and
    `g = torch.fx.wrap(f)` as that and `g = f`."""
    body: list[ast.stmt] = []
    for statement in tree.body:
        body.append(statement)
        call = statement.value if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if not isinstance(call, ast.Call) or dotted(call.func) != "torch.fx.wrap" or call.keywords:
            continue
        target, given = statement.targets[0], call.args[0] if len(call.args) == 1 else None
        if isinstance(target, ast.Name) and isinstance(given, ast.Name):
            body[-1] = ast.copy_location(ast.Expr(call), statement)
            if target.id != given.id:
                value = ast.copy_location(ast.Name(given.id, ast.Load()), given)
                body.append(ast.copy_location(ast.Assign([target], value), statement))
    tree.body = body


def apply_own_decorators(
    tree: ast.Module, dotted: Callable[[ast.expr], str | None], siblings: frozenset[str]
) -> list[ast.expr]:
    """`@register("a")` above `def f` as `f = register("a")(f)`, where `register` is a function of the pass: of the
    module or of one of its siblings; or a method of a variable of the module, as in `@RULES.register("a")`. `dotted`
    says what a name stands for that starts at an import.

    `@register("a")` above `class C` as `register("a")(C)`, which is the same where `hands_back` says so of the
    decorators: those of classes are returned, for whoever knows all modules."""
    own = {s.name for s in tree.body if isinstance(s, ast.FunctionDef)}
    made = {s.targets[0].id for s in tree.body if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)}

    def is_own(decorator: ast.expr) -> bool:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        home, _, name = (dotted(target) or "").partition(".")
        if home:
            return home in siblings and name != ""
        if isinstance(target, ast.Attribute):  # a method of an instance
            return isinstance(target.value, ast.Name) and target.value.id in made
        return isinstance(target, ast.Name) and target.id in own

    body: list[ast.stmt] = []
    of_classes: list[ast.expr] = []
    for statement in tree.body:
        body.append(statement)
        if isinstance(statement, ast.ClassDef):
            found = list(itertools.takewhile(is_own, statement.decorator_list))
            statement.decorator_list = statement.decorator_list[len(found) :]
            statement.__dict__.pop("_children", None)
            for decorator in reversed(found):
                given = ast.copy_location(ast.Name(statement.name, ast.Load()), decorator)
                call = ast.copy_location(ast.Call(decorator, [given], []), decorator)
                body.append(ast.copy_location(ast.Expr(call), decorator))
            of_classes += found
        if not isinstance(statement, ast.FunctionDef) or statement.name in _WITH_RULES:
            continue
        applied = [d for d in statement.decorator_list if is_own(d)]
        others = [d for d in statement.decorator_list if not is_own(d)]
        if not applied or not {dotted(d) for d in others} <= _WITHOUT_ORDER:
            continue  # `triton.jit` above a decorator would compile what that returns
        name = statement.name
        statement.name = f"{name} as written"
        statement.decorator_list = others
        statement.__dict__.pop("_children", None)
        value: ast.expr = ast.copy_location(ast.Name(statement.name, ast.Load()), statement)
        for decorator in applied[::-1]:
            value = ast.copy_location(ast.Call(decorator, [value], []), decorator)
        target = ast.copy_location(ast.Name(name, ast.Store()), statement)
        body.append(ast.copy_location(ast.Assign([target], value), statement))
    tree.body = body
    return of_classes


def fault_of_call(decorator: ast.expr, dotted: str, literals: Mapping[str, ast.expr]) -> str:
    """What is wrong with the arguments of a library's decorator of this full name; "" if nothing is.

    `@typing.final(f)` above `class C` is `C = f(C)`, and so is `@functools.lru_cache(f)`: what the name stands for
    afterwards is anything that `f` returns. `literals` are variables that are a literal and nothing else.
    """
    if not isinstance(decorator, ast.Call):
        return ""
    given = [*decorator.args, *(k.value for k in decorator.keywords)]
    if dotted in _AS_THEY_ARE and given:
        return f"write @{quoted(decorator.func)} without arguments: it would decorate these"
    if dotted in _WITH_OPTIONS and (decorator.args or "fn" in {k.arg for k in decorator.keywords}):
        return f"@{quoted(decorator.func)}(…) takes options by name alone: it would decorate what stands first"
    if dotted in _WITH_NUMBERS and not all(_is_number(one, literals) for one in given):
        return f"@{quoted(decorator.func)}(…) takes numbers, written out: it would decorate a function"
    return ""


def _is_number(node: ast.expr, literals: Mapping[str, ast.expr]) -> bool:
    """Whether an expression is a constant, or is computed of such."""
    parts = (part for part in ast.walk(node) if isinstance(part, ast.expr))
    return all(
        isinstance(part, ast.Constant | ast.BinOp | ast.UnaryOp)
        or (isinstance(part, ast.Name) and isinstance(literals.get(part.id), ast.Constant))
        for part in parts
    )

"""Code of a pass in the form that the rest of the policy knows: kernels at the top of their module, a base's methods
called by the base's name, and what decorators of the pass make of a function."""

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from passbench.policy.allowlists import ALIASED, ERROR_BASES, LIBDEVICES, MODULES, is_missing
from passbench.policy.nodes import bound_at, bound_names, walk, written_name


def lift_kernels(tree: ast.Module, is_kernel: Callable[[ast.FunctionDef], bool]) -> None:
    """Put kernels that stand under `if` or `try` at the top of a module behind that statement, in place: whether the
    name is bound at run time makes no difference to what the kernel may do. A name that is bound twice stays."""
    body = tree.body
    bound: Counter[str] | None = None
    for number in reversed(range(len(body))):
        lifted: list[ast.stmt] = []
        waiting = [body[number]]
        while waiting:
            statement = waiting.pop()
            for block in _blocks(statement):
                found = [s for s in block if isinstance(s, ast.FunctionDef) and is_kernel(s)]
                bound = _bound_at_top(tree) if found and bound is None else bound
                found = [s for s in found if bound[s.name] == 1]
                lifted += found
                if found:
                    block[:] = [s for s in block if s not in found] or [ast.copy_location(ast.Pass(), found[0])]
                waiting += block
        body[number + 1 : number + 1] = lifted
        if lifted:
            _forget_children(body[number])


def write_branches_as_imports(tree: ast.Module, dotted: Callable[[ast.expr], str | None]) -> list[ast.ImportFrom]:
    """`exp = tl.exp` under `if` or `try` at the top of a module as `from triton.language import exp`, in place, where
    imports and such statements alone bind the name; these imports are returned. `dotted` says what a name stands for
    that the module imports.

    Left out is what an import that fails leaves behind: `tl = None`, and `libdevice = tl.math` of a name for libdevice,
    which of the two makes no difference to what a kernel may do by it."""
    places: dict[str, list[tuple[list[ast.stmt], int, str | None]]] = {}
    waiting = [block for statement in tree.body for block in _blocks(statement)]
    for block in waiting:  # grows meanwhile
        for number, statement in enumerate(block):
            waiting += _blocks(statement)
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=None)):
                    places.setdefault(name, []).append((block, number, None))
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value) if dotted(value):
                    places.setdefault(name, []).append((block, number, dotted(value)))
    if not places:
        return []
    bound, imports = Counter[str](), Counter[str]()
    for node in ast.walk(tree):
        bound.update(bound_at(node))
        imports.update(bound_at(node) if isinstance(node, ast.alias) else ())
    made: list[ast.ImportFrom] = []
    for name, found in places.items():
        known = dotted(ast.Name(name, ast.Load()))
        values = {value for _, _, value in found} - {None}
        as_libdevice = known in LIBDEVICES and values <= LIBDEVICES | {"triton.language.math"}
        functions = all(v in ALIASED or is_missing(v) for v in {known, *values} - {None})
        of_module = known in MODULES and not values
        if bound[name] != len(found) + imports[name] or not (as_libdevice or of_module or (functions and values)):
            continue
        for block, number, value in found:
            statement = block[number]
            block[number] = ast.Pass()
            if value is not None and not as_libdevice:
                source, _, last = value.rpartition(".")
                block[number] = ast.ImportFrom(source, [ast.copy_location(ast.alias(last, name), statement)], 0)
                made.append(block[number])
            ast.copy_location(block[number], statement)
    for statement in tree.body:
        _forget_children(statement)
    return made


def _bound_at_top(tree: ast.Module) -> Counter[str]:
    """How often each name of a module is bound, outside of its functions or by `global`."""
    found: Counter[str] = Counter()
    for node in _of_block(tree.body):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found[node.id] += 1
        elif isinstance(node, ast.alias):
            found[node.asname or node.name.partition(".")[0]] += 1
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler) and node.name:
            found[node.name] += 1
    for node in ast.walk(tree):
        found.update(node.names if isinstance(node, ast.Global) else ())
    return found


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    if isinstance(statement, ast.If | ast.Try):
        yield statement.body
        yield statement.orelse
    if isinstance(statement, ast.Try):
        yield statement.finalbody
        yield from (handler.body for handler in statement.handlers)


def name_bases(own: ast.ClassDef, is_own: Callable[[ast.expr], bool]) -> list[ast.Call]:
    """`super().f(a)` in a method of a class as `BASE.f(self, a)`, in place, where the class has one base, of the pass,
    and the method binds neither name: `super()` asks the base, whatever a parameter of its name is.
    `super().__init__()` of a class without such a base does nothing, and becomes a name; of an error it is what the
    error is made with, `BASE(a)`.

    The calls that were rewritten are returned. They mean this where no class of the pass derives from several others.
    """
    found: list[ast.Call] = []
    of_pass = [base for base in own.bases if is_own(base)]
    if len(own.bases) > 1 or own.decorator_list:
        return found
    named = {own.name, *(written_name(base).partition(".")[0] for base in own.bases)}
    for method in own.body:
        plain = isinstance(method, ast.FunctionDef) and not method.decorator_list
        plain = plain and named.isdisjoint(bound_names(method))
        first = [*method.args.posonlyargs, *method.args.args][:1] if plain else []
        for node in _of_block(method.body) if first else ():
            call = node.value if isinstance(node, ast.Expr) else node
            if not isinstance(call, ast.Call) or not _is_super(call.func, own.name, first[0].arg):
                continue
            if of_pass:
                call.func.value = ast.copy_location(ast.parse(ast.unparse(of_pass[0]), mode="eval").body, call)
                ast.fix_missing_locations(call.func.value)
                call.args.insert(0, ast.copy_location(ast.Name(first[0].arg, ast.Load()), call))
                found.append(call)
            elif isinstance(node, ast.Expr) and call.func.attr == "__init__" and _is_error(own):
                node.value = ast.copy_location(ast.Call(own.bases[0], call.args, call.keywords), call)
                found.append(call)
            elif isinstance(node, ast.Expr) and call.func.attr == "__init__" and not (call.args or call.keywords):
                node.value = ast.copy_location(ast.Constant(None), call)
                found.append(call)
    if found:
        _forget_children(own)
    return found


def write_lambdas_as_functions(tree: ast.Module, named: Collection[str]) -> None:
    """`NAME = lambda x: …` at the top of a module as `def NAME(x): return …`, in place, for these names where one is
    bound once. Call it before anything walks the tree."""
    found: dict[str, int] = {}
    for number, statement in enumerate(tree.body):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Lambda()) if name in named:
                found[name] = number
    if not found:
        return
    bound: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound[node.id] += 1
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound[node.name] += 1
    for name, number in found.items():
        if bound[name] == 1:
            written = tree.body[number]
            returned = ast.copy_location(ast.Return(written.value.body), written)
            made = ast.FunctionDef(name, written.value.args, [returned], [], None, None)
            tree.body[number] = ast.copy_location(made, written)


def write_mapped_arguments(tree: ast.Module, bound: Collection[str]) -> None:
    """`args = [f(a) for a in args]` of a function with a parameter `*args`, of which only `*args` of one call is read
    behind it, as `*[f(a) for a in args]` of that call, in place; `tuple(…)` and `list(…)` around it mean the same
    there. `bound` holds the names that the module binds."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or function.args.vararg is None:
            continue
        for number, statement in enumerate(function.body):
            assigned = statement.value if isinstance(statement, ast.Assign) else None
            mapped = _mapped(assigned, function.args.vararg.arg, bound)
            if mapped is not None:  # the first alone: each takes a look at the whole function
                if (star := _only_star(function, number, statement.targets, mapped)) is not None:
                    star.value = ast.copy_location(mapped, star)
                    del function.body[number]
                break


def _mapped(value: ast.expr | None, rest: str, bound: Collection[str]) -> ast.ListComp | None:
    """What makes something of each item of `rest`, without `tuple(…)` or `list(…)` around it."""
    match value:
        case ast.Call(func=ast.Name(id="tuple" | "list"), args=[inner], keywords=[]) if value.func.id not in bound:
            value = inner
    match value:
        case ast.ListComp(elt, [each]) | ast.GeneratorExp(elt, [each]):
            of_rest = isinstance(each.iter, ast.Name) and each.iter.id == rest and isinstance(each.target, ast.Name)
            plain = of_rest and not each.ifs and not each.is_async
            return ast.ListComp(elt, [each]) if plain else None
    return None


def _only_star(
    function: ast.FunctionDef, number: int, targets: list[ast.expr], mapped: ast.ListComp
) -> ast.Starred | None:
    """The `*NAME` of a call that alone reads what the statement of this number gives to a variable, if it is reached
    once, and everything that is mapped is the same there."""
    name = targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""
    nodes = list(ast.walk(function))
    bound = Counter(one for node in nodes for one in bound_at(node))
    own = name == function.args.vararg.arg
    loads = sum(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load) for node in nodes)
    if bound[name] != 1 + own or loads != 1 + own:
        return None
    item = mapped.generators[0].target.id
    within = {node.id for node in ast.walk(mapped.elt) if isinstance(node, ast.Name)} - {item}
    if any(bound[one] > 1 for one in within) or any(isinstance(n, ast.NamedExpr) for n in ast.walk(mapped.elt)):
        return None
    behind = _of_block(function.body[number + 1 :])
    again = {below for node in behind if isinstance(node, ast.For | ast.While) for below in ast.walk(node)}
    found = [a for node in behind if isinstance(node, ast.Call) for a in node.args if isinstance(a, ast.Starred)]
    stars = [a for a in found if isinstance(a.value, ast.Name) and a.value.id == name and a not in again]
    return stars[0] if stars else None


def _is_error(own: ast.ClassDef) -> bool:
    """Whether a class derives from one of Python's errors alone."""
    return [base.id for base in own.bases[:1] if isinstance(base, ast.Name) and base.id in ERROR_BASES] != []


def _forget_children(changed: ast.AST) -> None:
    """Let `passbench.policy.nodes` list anew what is below a statement."""
    for node in ast.walk(changed):
        node.__dict__.pop("_children", None)


def _of_block(block: list[ast.stmt]) -> list[ast.AST]:
    """Nodes of statements, without what is within a function, class, lambda or comprehension there."""
    inner = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
    inner |= ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    found: list[ast.AST] = list(block)
    for node in found:  # grows meanwhile
        if not isinstance(node, inner):
            found += ast.iter_child_nodes(node)
    return found


def _is_super(node: ast.expr, own: str, first: str) -> bool:
    """Whether an expression is `super().NAME`, or `super(OWN, FIRST).NAME` as it was written once."""
    call = node.value if isinstance(node, ast.Attribute) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != "super":
        return False
    given = [a.id if isinstance(a, ast.Name) else "" for a in call.args]
    return not call.keywords and given in ([], [own, first])


def returned_by_decorators(
    function: str, body: list[ast.stmt], lookup: Callable[[str], ast.FunctionDef | None]
) -> bool:
    """Whether a name of a module is a function under decorators of the pass (`decorators.py`), each of which returns a
    function that it defines, or the one that it gets."""
    values = [
        s.value
        for s in body
        if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name) and s.targets[0].id == function
    ]
    stored = sum(
        isinstance(n, ast.Name) and n.id == function and not isinstance(n.ctx, ast.Load) for s in body for n in walk(s)
    )
    if len(values) != 1 or stored != 1:
        return False
    value = values[0]
    while isinstance(value, ast.Call):
        decorator = lookup(value.func.id) if isinstance(value.func, ast.Name) else None
        if decorator is None or len(value.args) != 1 or not _gives_function(decorator):
            return False
        value = value.args[0]
    return isinstance(value, ast.Name) and value.id == f"{function} as written"


def _gives_function(decorator: ast.FunctionDef) -> bool:
    defined = {s.name for s in decorator.body if isinstance(s, ast.FunctionDef)}
    given = {a.arg for a in decorator.args.args}
    nodes = _of_block(decorator.body)
    rebound = {n.id for n in nodes if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)}
    returns = [n.value for n in nodes if isinstance(n, ast.Return)]
    known = (defined | given) - rebound
    return bool(returns) and all(isinstance(value, ast.Name) and value.id in known for value in returns)

"""Expressions that stand for something simpler, written as that: casts, `getattr` of a name that is written out, JSON
that is, the name of a function, functions of `operator` that have a sign or get a part, and questions about the
surroundings that are asked once, when a module is imported.

`os.environ.get("BLOCK", "256")` at the top of a module is a text; a worker's environment is the same from its start on
until a pass is imported. `"x" in inspect.signature(triton.Config).parameters` is true or false.
"""

import ast
from collections.abc import Callable, Collection, Mapping

from passbench.policy.allowlists import DEVICE_NAMES, ERRORS, MODULES
from passbench.policy.forms.casts import without_casts
from passbench.policy.forms.json_texts import JsonTexts
from passbench.policy.nodes import children, placed

Dotted = Callable[[ast.expr], str | None]
_ENVIRONMENT = frozenset(("os.environ.get", "os.getenv"))
_SIGNATURES = frozenset(
    "triton.Config triton.jit triton.autotune triton.heuristics triton.runtime.Autotuner torch.compile".split()
)
"""What may be asked for the names of its parameters."""
_MOST_DOTS = 8
_FILTERS = frozenset("itertools.takewhile itertools.dropwhile itertools.filterfalse".split())
_RUN_LATER = frozenset((ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.GeneratorExp))


def write_plainly(
    tree: ast.Module, dotted: Dotted, bound: Mapping[str, int], is_kernel: Callable[[ast.FunctionDef], bool]
) -> None:
    """Put these in place, kernels aside, of whose text Triton makes its own. `dotted` says what a name stands for that
    starts at an import, `bound` holds the names that the module binds."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, True)]
    texts = JsonTexts(tree, dotted, bound)
    while waiting:
        node, once = waiting.pop()
        node.__dict__.pop("_children", None)  # `passbench.policy.nodes` lists anew what is below each
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                value[:] = [_plain(one, dotted, bound, once, texts) for one in value]
            elif isinstance(value, ast.AST):
                setattr(node, name, _plain(value, dotted, bound, once, texts))
        for child in children(node):
            if not (isinstance(child, ast.FunctionDef) and is_kernel(child)):
                waiting.append((child, once and type(child) not in _RUN_LATER))


def without_null_handlers(tree: ast.Module, dotted: Dotted, bound: Mapping[str, int]) -> None:
    """`LOG.addHandler(logging.NullHandler())` at the top of a module as `LOG`, in place: such a handler does nothing.
    `LOG` is bound once, to what `logging.getLogger` returns, or that call itself."""

    def is_logger(node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and dotted(node.func) == "logging.getLogger"

    loggers: set[str] = set()
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if is_logger(value) and bound[name] == 1:
                loggers.add(name)
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(value=of, attr="addHandler"), args=[ast.Call() as made], keywords=[])
            ) if dotted(made.func) == "logging.NullHandler" and not made.args and not made.keywords:
                if is_logger(of) or (isinstance(of, ast.Name) and of.id in loggers):
                    statement.value = of
                    statement.__dict__.pop("_children", None)


def _plain(node: ast.AST, dotted: Dotted, bound: Collection[str], once: bool, texts: JsonTexts) -> ast.AST:
    node = without_casts(node, dotted, bound)
    if "type" not in bound:
        _name_shown_types(node, bound)
    found = None
    if isinstance(node, ast.Call):
        _call_by_brackets(node, dotted, bound)
        found = _attribute(node, bound)
        if found is None and once and dotted(node.func) in _ENVIRONMENT and _has_constants(node):
            texts = [a.value for a in ast.walk(node) if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            found = ast.Constant("".join(texts[1:]))  # the default, where it is a text
        if found is None:
            found = _with_keys(node, bound)
        if found is None:
            found = texts.written(node)
        if found is None:
            found = _by_sign(node, dotted)
        if found is None:
            found = _getter(node, dotted)
        if found is None:
            found = _as_filter(node, dotted, bound)
        if found is None and dotted(node.func) == "traceback.print_exc" and not (node.args or node.keywords):
            found = None if "print" in bound else ast.Call(_named("print"), [], [])  # to the log, which nobody reads
    elif isinstance(node, ast.Compare) and once and _asks(node, dotted):
        found = ast.Constant(False)
    elif isinstance(node, ast.Compare) and _asks_for_import(node, dotted):
        found = ast.Constant(isinstance(node.ops[0], ast.IsNot))
    made = node if found is None else placed(found, node)
    named = isinstance(made, ast.Attribute) and made.attr in ("__name__", "__qualname__")
    return _of_type(made) if named and isinstance(made.ctx, ast.Load) and "type" not in bound else made


def _name_shown_types(node: ast.AST, bound: Collection[str]) -> None:
    """`type(x)` as `type(x).__name__`, in place, where a node makes a text of it at once, or raises a built-in error
    with it: a type's text has no address."""
    match node:
        case ast.FormattedValue():
            node.value = _name_of_type(node.value)
        case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod(), right=ast.Tuple(elts=shown)):
            shown[:] = map(_name_of_type, shown)
        case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
            node.right = _name_of_type(node.right)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="format"), args=shown):
            shown[:] = map(_name_of_type, shown)
        case ast.Call(func=ast.Name(id="str" | "repr" | "print" as name), args=shown):
            shown[:] = shown if name in bound else map(_name_of_type, shown)
        case ast.Raise(exc=ast.Call(func=ast.Name(id=name), args=shown)):
            shown[:] = map(_name_of_type, shown) if name in ERRORS and name not in bound else shown


def _name_of_type(node: ast.expr) -> ast.expr:
    return ast.copy_location(ast.Attribute(node, "__name__", ast.Load()), node) if _is_type(node) else node


def _of_type(node: ast.Attribute) -> ast.Attribute:
    """`f.__name__` as `type(f).__name__`, and `self.__class__.__name__`, too: each is a text that no call changes."""
    of = node.value
    if not _is_type(of):
        match of:
            case ast.Attribute(value=ast.Name("self"), attr="__class__"):
                of = of.value
        of = ast.copy_location(ast.Call(ast.copy_location(ast.Name("type", ast.Load()), node), [of], []), node)
    return ast.copy_location(ast.Attribute(of, "__name__", ast.Load()), node)


def _attribute(node: ast.Call, bound: Collection[str]) -> ast.expr | None:
    """`getattr(x, "NAME")` as `x.NAME`, with a third argument as that or `x.NAME`; None for other calls."""
    if not isinstance(node.func, ast.Name) or node.func.id != "getattr" or "getattr" in bound or node.keywords:
        return None
    name = node.args[1].value if len(node.args) in (2, 3) and isinstance(node.args[1], ast.Constant) else None
    if not isinstance(name, str) or not name.isidentifier() or any(isinstance(a, ast.Starred) for a in node.args):
        return None
    found = ast.copy_location(ast.Attribute(node.args[0], name, ast.Load()), node)
    if len(node.args) == 2:
        return found
    return ast.IfExp(ast.copy_location(ast.Constant(True), node), found, node.args[2])


def _with_keys(node: ast.Call, bound: Collection[str]) -> ast.expr | None:
    """`dict.fromkeys(keys, value)` as `{key: value for key in keys}`, of a name that no source can spell."""
    match node:
        case ast.Call(func=ast.Attribute(ast.Name("dict"), "fromkeys"), args=[keys, *rest], keywords=[]):
            if "dict" in bound or len(rest) > 1 or any(isinstance(a, ast.Starred) for a in node.args):
                return None
            loop = ast.comprehension(ast.Name("a key", ast.Store()), keys, [], 0)
            value = rest[0] if rest else ast.Constant(None)
            made = ast.DictComp(ast.Name("a key", ast.Load()), value, [loop])
            return placed(made, node)
    return None


_COMPARISONS = {
    "operator.eq": ast.Eq, "operator.ne": ast.NotEq, "operator.lt": ast.Lt, "operator.le": ast.LtE,
    "operator.gt": ast.Gt, "operator.ge": ast.GtE,
}  # fmt: skip


def _by_sign(node: ast.Call, dotted: Dotted) -> ast.expr | None:
    """`operator.mod(a, b)` as `a % b`, `operator.eq(a, b)` as `a == b`, `operator.getitem(a, b)` as `a[b]`; None for
    other calls."""
    if len(node.args) != 2 or node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
        return None
    left, right = node.args
    match dotted(node.func):
        case "operator.getitem":
            return ast.Subscript(left, right, ast.Load())
        case "operator.mod":
            return ast.BinOp(left, ast.Mod(), right)
        case name if name in _COMPARISONS:
            return ast.Compare(left, [_COMPARISONS[name]()], [right])
    return None


def _call_by_brackets(node: ast.Call, dotted: Dotted, bound: Collection[str]) -> None:
    """`map(operator.getitem, rows, keys)` as `map(lambda a, b: a[b], rows, keys)`, in place, and so for what else calls
    such a function then and there. Elsewhere it stays: a class hands its instance to a lambda that it holds."""
    of_library = dotted(node.func) in ("functools.reduce", "itertools.accumulate")
    if of_library or (isinstance(node.func, ast.Name) and node.func.id == "map" and "map" not in bound):
        for number, given in enumerate(node.args):
            if isinstance(given, ast.Name | ast.Attribute) and dotted(given) == "operator.getitem":
                part = ast.Subscript(_named("a list"), _named("an index"), ast.Load())
                node.args[number] = placed(_lambda(("a list", "an index"), part), given)


def _as_filter(node: ast.Call, dotted: Dotted, bound: Collection[str]) -> ast.expr | None:
    """`itertools.takewhile(f, items)` as `filter(f, items)`: it asks `f` of items in order, and hands out some."""
    if dotted(node.func) not in _FILTERS or "filter" in bound:
        return None
    return ast.Call(ast.Name("filter", ast.Load()), node.args, node.keywords)


def _getter(node: ast.Call, dotted: Dotted) -> ast.expr | None:
    """`operator.itemgetter(1)` as `lambda row: row[1]`, `operator.attrgetter("cost")` as `lambda row: row.cost`; None
    for other calls."""
    kind = dotted(node.func)
    if kind not in ("operator.itemgetter", "operator.attrgetter") or not node.args or node.keywords:
        return None
    parts: list[ast.expr] = []
    for given in node.args:
        if not isinstance(given, ast.Constant):
            return None
        part: ast.expr = _named("an item")
        if kind == "operator.itemgetter":
            part = ast.Subscript(part, given, ast.Load())
        elif (
            not isinstance(given.value, str)
            or not given.value.replace(".", "").isidentifier()
            or given.value.count(".") > _MOST_DOTS
        ):
            return None
        else:
            for name in given.value.split("."):
                part = ast.Attribute(part, name, ast.Load())
        parts.append(part)
    return _lambda(("an item",), parts[0] if len(parts) == 1 else ast.Tuple(parts, ast.Load()))


def _named(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _lambda(parameters: tuple[str, ...], body: ast.expr) -> ast.Lambda:
    """A lambda with parameters that no source can spell."""
    return ast.Lambda(ast.arguments([], [ast.arg(name) for name in parameters], None, [], [], None, []), body)


def _is_type(node: ast.expr) -> bool:
    """Whether an expression is `type(x)`."""
    match node:
        case ast.Call(func=ast.Name("type"), args=[given], keywords=[]):
            return not isinstance(given, ast.Starred)
    return False


def _has_constants(node: ast.Call) -> bool:
    """Whether the arguments of a call are a text and a default, written out."""
    given = [*node.args, *(k.value for k in node.keywords if k.arg == "default")]
    plain = all(isinstance(a, ast.Constant) for a in given) and len(given) == len(node.args) + len(node.keywords)
    return plain and len(given) in (1, 2) and bool(node.args) and isinstance(node.args[0].value, str)


def _asks_for_import(node: ast.Compare, dotted: Dotted) -> bool:
    """Whether an expression is `triton is None`, or `tanh is not None` of a function of Triton's: what an import that
    fails may leave behind."""
    of_library = isinstance(node.left, ast.Name) and dotted(node.left) in MODULES | DEVICE_NAMES
    right = node.comparators[0]
    alone = len(node.ops) == 1 and isinstance(right, ast.Constant) and right.value is None
    return of_library and alone and isinstance(node.ops[0], ast.Is | ast.IsNot)


def _asks(node: ast.Compare, dotted: Dotted) -> bool:
    """Whether an expression is `"NAME" in os.environ`, or `"NAME" in inspect.signature(triton.Config).parameters`."""
    if len(node.ops) != 1 or not isinstance(node.ops[0], ast.In | ast.NotIn) or not isinstance(node.left, ast.Constant):
        return False
    asked = node.comparators[0]
    if dotted(asked) == "os.environ":
        return isinstance(node.left.value, str)
    call = asked.value if isinstance(asked, ast.Attribute) and asked.attr == "parameters" else None
    if not isinstance(call, ast.Call) or dotted(call.func) != "inspect.signature" or len(call.args) != 1:
        return False
    return not call.keywords and (dotted(call.args[0]) or "").removesuffix(".__init__") in _SIGNATURES

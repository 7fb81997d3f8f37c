"""What a loop takes apart: the parts of each item, where the source writes them out.

`for name, t in (("x", x), ("y", y))` and `for name, t in {"x": x}.items()` have a text and a tensor in each item. So
may `args` of `def f(*args)`, of which the calls of `f` tell item by item what it holds.
"""

import ast
from collections import Counter
from collections.abc import Callable, Container

from passbench.policy.modules import Module
from passbench.policy.nodes import bound_names, walk


def columns(iterable: ast.expr) -> list[list[ast.expr]] | None:
    """The first, second, … parts of the items of a list or tuple whose items are tuples of one length, all written
    out; None for other expressions."""
    rows = iterable.elts if isinstance(iterable, ast.Tuple | ast.List) else []
    if not rows or not all(isinstance(row, ast.Tuple | ast.List) for row in rows):
        return None
    if len({len(row.elts) for row in rows}) > 1 or any(isinstance(e, ast.Starred) for row in rows for e in row.elts):
        return None
    return [list(column) for column in zip(*(row.elts for row in rows), strict=True)]


def parts_handed_out(node: ast.expr | None) -> list[list[ast.expr | None]]:
    """The same of a dict: its keys and values. Empty for what is no such display."""
    return [node.keys, node.values] if isinstance(node, ast.Dict) else columns(node) or []


def dict_of_items(iterable: ast.expr) -> ast.expr | None:
    """`D` of `D.items()`; None for other expressions."""
    if not isinstance(iterable, ast.Call) or iterable.args or iterable.keywords:
        return None
    method = iterable.func
    return method.value if isinstance(method, ast.Attribute) and method.attr == "items" else None


def has_plain_keys(node: ast.expr) -> bool:
    """Whether an expression is a dict whose keys are written out, or names within a comprehension."""
    if isinstance(node, ast.DictComp):
        return isinstance(node.key, ast.Name | ast.Constant)
    return isinstance(node, ast.Dict) and all(isinstance(key, ast.Constant) for key in node.keys)


def dicts_of_variable(function: ast.FunctionDef, name: str) -> list[ast.expr] | None:
    """All dicts that a variable of a function can be, where each has plain keys and the function binds it in no other
    way; the parameter `**name` counts as none of them. None where it could have other keys."""
    arguments = function.args
    handed = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg) if a}
    if name in handed:
        return None
    found: list[ast.expr] = []
    known: set[ast.AST] = set()
    nodes = walk(function)
    for node in nodes:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            target = node.target
        if isinstance(target, ast.Name) and target.id == name and has_plain_keys(node.value):
            found.append(node.value)
            known.add(target)
    for node in nodes:
        stored = isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
        updated = isinstance(node, ast.Attribute) and node.attr == "update"
        if (stored and node not in known) or (updated and isinstance(node.value, ast.Name) and node.value.id == name):
            return None
    kwarg = arguments.kwarg is not None and arguments.kwarg.arg == name
    return found if found or kwarg else None


def written_collections(function: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    """Variables of a function that are a tuple or a list which is written out, and nothing else, with the items. A list
    is read as `*NAME` of a call alone, so that nothing is put into it."""
    written: dict[str, ast.Tuple | ast.List] = {}
    bound = bound_names(function)
    read: Counter[str] = Counter()
    starred: Counter[str] = Counter()
    for node in walk(function):
        if isinstance(node, ast.Name):
            read[node.id] += isinstance(node.ctx, ast.Load)
        elif isinstance(node, ast.Call):
            starred.update(a.value.id for a in node.args if _is_starred_name(a))
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple | ast.List):
            alone = node.targets if len(node.targets) == 1 else []
            written |= {target.id: node.value for target in alone if isinstance(target, ast.Name)}
    return {
        name: value.elts
        for name, value in written.items()
        if bound[name] == 1 and (isinstance(value, ast.Tuple) or read[name] == starred[name])
    }


def unchanged_lists(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Variables of a function that are a list, a tuple or a list comprehension which is written out, and that are read
    item by item alone: by a subscript, by a loop, as `*NAME` of a call, by `len`, or by `return`. Nothing is put into
    one while the function runs, but for what the function appends to a list by a statement, which counts as written
    out; and no function within, which may be called later, reads it."""
    written: dict[str, ast.expr] = {}
    appended: dict[str, list[ast.expr]] = {}
    bound = bound_names(function)
    read: Counter[str] = Counter()
    allowed: Counter[str] = Counter()
    for node in walk(function):
        plain: list[ast.expr | None] = []
        match node:
            case ast.Name(ctx=ast.Load()):
                read[node.id] += 1
            case ast.Assign(targets=[ast.Name() as target], value=ast.List() | ast.Tuple() | ast.ListComp()):
                written[target.id] = node.value
            case ast.Subscript(ctx=ast.Load()) if not isinstance(node.slice, ast.Slice):
                plain = [node.value]
            case ast.For() | ast.comprehension():
                plain = [node.iter]
            case ast.Return():
                plain = [node.value]
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="append"), args=[item], keywords=[])) if isinstance(
                node.value.func.value, ast.Name
            ) and not isinstance(item, ast.Starred):
                plain = [node.value.func.value]
                appended.setdefault(node.value.func.value.id, []).append(item)
            case ast.FunctionDef() | ast.Lambda() if node is not function:
                bound.update(n.id for n in walk(node) if isinstance(n, ast.Name))
            case ast.Call(func=ast.Name(id="len" | "tuple" | "zip" | "enumerate"), keywords=[]):
                plain = node.args
            case ast.Call():
                plain = [a.value for a in node.args if isinstance(a, ast.Starred)]
        allowed.update(one.id for one in plain if isinstance(one, ast.Name))
    found = {name: value for name, value in written.items() if bound[name] == 1 and read[name] == allowed[name]}
    for name in found.keys() & appended.keys():
        if not isinstance(found[name], ast.List):  # of a comprehension the items are not written out
            del found[name]
        else:
            found[name] = ast.List([*found[name].elts, *appended[name]], ast.Load())
    return found


def kept_displays(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Variables of a function that it binds once, to a display or a call, with that, and of which it reads items alone:
    by `NAME[…]`, as `*NAME` or `**NAME` of a call, by `len`, or taken apart into names. Nobody else has the display's
    or the call's dict then, and nothing is put into it."""
    bound = bound_names(function)
    written: dict[str, ast.expr] = {}
    read: Counter[str] = Counter()
    allowed: Counter[str] = Counter()
    for node in walk(function):
        plain: list[ast.expr] = []
        match node:
            case ast.Name(ctx=ast.Load()):
                read[node.id] += 1
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Tuple() | ast.List() | ast.Dict() | ast.Call()):
                written[name] = node.value
            case ast.Assign(targets=[ast.Tuple()]):
                plain = [node.value]
            case ast.Subscript(ctx=ast.Load()):
                plain = [node.value]
            case ast.Call():
                plain = [a.value for a in node.args if isinstance(a, ast.Starred)]
                plain += [k.value for k in node.keywords if k.arg is None]
                plain += node.args if isinstance(node.func, ast.Name) and node.func.id == "len" else []
        allowed.update(one.id for one in plain if isinstance(one, ast.Name))
    return {name: value for name, value in written.items() if bound[name] == 1 and read[name] == allowed[name]}


def item_of(display: ast.expr, index: ast.expr) -> ast.expr | None:
    """What `display[index]` is of a dict, list or tuple that is written out, with constant keys; None if that is not
    sure, or is itself made of an item of a variable, for which the same would be asked, again and again."""
    starred = isinstance(display, ast.List | ast.Tuple) and any(isinstance(e, ast.Starred) for e in display.elts)
    if isinstance(display, ast.Dict):
        starred = not all(isinstance(key, ast.Constant) for key in display.keys)
        starred |= not isinstance(index, ast.Constant)
    elif constant_index(index) is None:
        return None
    found = [] if starred else items_at(display, index)[-1:]
    within = [node for item in found for node in walk(item)]
    of_items = any(isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) for node in within)
    return found[0] if found and not of_items else None


def _is_function(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef)


def _is_starred_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Starred) and isinstance(node.value, ast.Name)


class CollectedArguments:
    """Functions and methods of a pass with a parameter `*rest`: where it is read, and how many arguments they get.

    `first`: the number of the first argument that is collected, a method's instance aside."""

    def __init__(self, modules: dict[str, Module]) -> None:
        self.first: dict[ast.FunctionDef, int] = {}
        self._functions: dict[ast.AST, ast.FunctionDef] = {}
        self._lengths: dict[object, set[int] | None] = {}
        for module in modules.values():
            methods = {s for own in module.classes.values() for s in own.body if isinstance(s, ast.FunctionDef)}
            for function in filter(_is_function, walk(module.tree)):
                if function.args.vararg is None or (function in methods and function.decorator_list):
                    continue
                self.first[function] = len([*function.args.posonlyargs, *function.args.args]) - (function in methods)
                self._functions |= dict.fromkeys(uses_of_rest(function), function)
                self._lengths.setdefault(self._key(function, function in methods), set())

    @staticmethod
    def _key(function: ast.FunctionDef, method: bool) -> object:
        return function.name if method else function

    def function_of(self, node: ast.expr) -> ast.FunctionDef | None:
        """The function whose parameter `*rest` an expression names."""
        return self._functions.get(node)

    def note(self, function: ast.FunctionDef | str, count: int | None) -> bool:
        """Note how many arguments a function, or methods of a name, get in a call; None where that is not known.
        Returns whether that is new."""
        known = self._lengths.get(function)
        if known is None or count in known:
            return False
        if count is None:
            self._lengths[function] = None
        else:
            known.add(count)
        return True

    def lengths(self, function: ast.FunctionDef, by_anyone: Container) -> set[int] | None:
        """With how many arguments a function is called; None where a call does not tell, or anyone may call it."""
        if function in by_anyone:
            return None
        return self._lengths[function if function in self._lengths else function.name]


def uses_of_rest(function: ast.FunctionDef) -> list[ast.Name]:
    """Where a function reads its parameter `*rest`; none if it binds that name in another way, too."""
    if function.args.vararg is None:
        return []
    name = function.args.vararg.arg
    nodes = [node for statement in function.body for node in walk(statement)]
    for node in nodes:
        bound = isinstance(node, ast.Name) and node.id == name and not isinstance(node.ctx, ast.Load)
        others = (getattr(node, key, None) for key in ("arg", "asname", "rest"))
        named = not isinstance(node, ast.keyword) and (name in others or getattr(node, "name", None) == name)
        if bound or named or (isinstance(node, ast.Global | ast.Nonlocal) and name in node.names):
            return []
    return [node for node in nodes if isinstance(node, ast.Name) and node.id == name]


def constant_slice(node: ast.expr) -> slice | None:
    """The slice of a subscript `x[a:b]` whose bounds are written out; None for other expressions."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
        return None
    parts = [node.slice.lower, node.slice.upper, node.slice.step]
    numbers = [None if part is None else constant_index(part) for part in parts]
    known = all(part is None or number is not None for part, number in zip(parts, numbers, strict=True))
    return slice(*numbers) if known and numbers[2] in (None, 1) else None


def items_at(display: ast.expr, index: ast.expr) -> list[ast.expr]:
    """What `display[index]` may be of a dict, list or tuple that is written out; nothing of any other expression."""
    if isinstance(display, ast.Dict):
        known = isinstance(index, ast.Constant) and all(isinstance(key, ast.Constant) for key in display.keys)
        pairs = zip(display.keys, display.values, strict=True)
        return [value for key, value in pairs if not known or key.value == index.value]
    items = display.elts if isinstance(display, ast.List | ast.Tuple) else []
    number = constant_index(index)
    plain = number is not None and not any(isinstance(item, ast.Starred) for item in items)
    return items[number:][:1] if plain else items


def constant_index(node: ast.expr) -> int | None:
    """The number of `2` or `-2`; None for other expressions."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    constant = node.operand if negative else node
    if not isinstance(constant, ast.Constant) or type(constant.value) is not int:
        return None
    return -constant.value if negative else constant.value


def parts_of_union(node: ast.expr, dotted: Callable[[ast.expr], str | None]) -> list[ast.expr]:
    """The types that `typing.Union[A, B]` or `A | B` is made of, those of unions within included, and `A` of
    `typing.Annotated[A, "note"]`; of any other type it is the type itself. `dotted` says what a name stands for that
    starts at an import."""
    waiting, found = [node], []
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.BinOp):
            waiting += [part.left, part.right]
            continue
        name = (dotted(part.value) or "").rpartition(".")[2] if isinstance(part, ast.Subscript) else ""
        if name not in ("Union", "Annotated"):
            found.append(part)
            continue
        within = part.slice.elts if isinstance(part.slice, ast.Tuple) else [part.slice]
        waiting += within if name == "Union" else within[:1]
    return found

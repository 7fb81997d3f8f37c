"""`replacement_args` as one return: what its own variables and constants of the modules stand for is put in their
place.

`args = (x, w)` before `return (*args, ROUTE)`, with `ROUTE = "add"` in this module or a sibling, is
`return (x, w, "add")`. `dict(eps=1e-5)` is `{"eps": 1e-5}`, and `tuple(args)` is the tuple of what `args` holds.
"""

import ast
from collections import Counter
from collections.abc import Callable, Mapping

_MOST = 2000
"""Items that a tuple made of others may have, those within its items included: each name stands for all of them."""

Constant = Callable[[ast.expr], ast.expr | None]
Pickable = Callable[[ast.expr], bool]
_COLLECTIONS = {"tuple": ast.Tuple, "list": ast.List}


def write_out_picked(
    function: ast.FunctionDef, constant: Constant, pickable: Pickable, built_in: Callable[[str], bool]
) -> None:
    """Give `replacement_args` this form, in place, if it does nothing but pick; else it stays. `constant` says which
    literal a name or an attribute stands for that is none of the function's own; `pickable` whether an item may be
    handed on; `built_in` whether a name is Python's throughout the module. What the function binds is that, too,
    whether it returns it or not: all of it runs."""
    picked = _Picked(function, constant, pickable, built_in)
    try:
        result = picked.follow(function.body)
    except _ComputesError:
        return
    function.body = [ast.copy_location(ast.Return(result), function.body[-1])]
    function.__dict__.pop("_children", None)


class _Picked:
    """What the variables of `replacement_args` stand for, statement by statement."""

    def __init__(
        self, function: ast.FunctionDef, constant: Constant, pickable: Pickable, built_in: Callable[[str], bool]
    ) -> None:
        self._constant, self._pickable, self._built_in = constant, pickable, built_in
        self._given = {a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)}
        self._bound: dict[str, ast.expr] = {}
        self._local = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        self._sizes: dict[ast.expr, int] = {}

    def follow(self, body: list[ast.stmt]) -> ast.expr:
        """What the last of these statements returns. Raises _ComputesError where one does more than bind."""
        for statement in body:
            match statement:
                case ast.Assign():
                    value = self._picks(statement.value)
                    for target in statement.targets:
                        self._bind(target, value)
                case ast.AnnAssign(target=ast.Name(), value=ast.expr()):
                    self._bind(statement.target, self._picks(statement.value))
                case ast.Return(value=ast.expr()) if statement is body[-1]:
                    return self._picks(statement.value)
                case ast.Pass() | ast.Expr(value=ast.Constant()):
                    pass
                case _:
                    raise _ComputesError
        raise _ComputesError

    def _picks(self, node: ast.expr) -> ast.expr:
        """An expression with what its names stand for."""
        if isinstance(node, ast.Name):
            if node.id in self._bound or node.id in self._given:
                return self._bound.get(node.id, node)
            if node.id in self._local:
                raise _ComputesError  # it is bound later, if at all
        if isinstance(node, ast.Tuple | ast.List):
            return self._made([part for one in node.elts for part in self._parts(one)], node)
        if (items := self._items_of_dict(node)) is not None:
            return self._made_dict(items, node)
        if isinstance(node, ast.Call) and (kind := self._collects(node)) is not None:
            held = self._picks(node.args[0])
            if not isinstance(held, ast.Tuple | ast.List):
                raise _ComputesError
            return self._made(held.elts, ast.copy_location(kind([], ast.Load()), node))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            sides = self._picks(node.left), self._picks(node.right)
            if isinstance(sides[0], ast.Tuple | ast.List) and type(sides[0]) is type(sides[1]):
                return self._made(sides[0].elts + sides[1].elts, sides[0])
        root = node
        while isinstance(root, ast.Attribute):
            root = root.value
        own = isinstance(root, ast.Name) and root.id in self._given | self._local
        found = self._constant(node) if isinstance(node, ast.Name | ast.Attribute) and not own else None
        if isinstance(found, ast.Tuple):
            return self._picks(found)
        found = node if found is None else found
        if not self._pickable(found):
            raise _ComputesError
        return found

    def _parts(self, node: ast.expr) -> list[ast.expr]:
        if not isinstance(node, ast.Starred):
            return [self._picks(node)]
        found = self._picks(node.value)
        if not isinstance(found, ast.Tuple | ast.List):
            raise _ComputesError
        return found.elts

    def _items_of_dict(self, node: ast.expr) -> list[tuple[ast.expr, ast.expr]] | None:
        """Keys and values of `{"a": 1}`, or of `dict(a=1)`; None for other expressions."""
        if isinstance(node, ast.Dict) and all(is_plain_key(key) for key in node.keys):
            return list(zip(node.keys, node.values, strict=True))
        called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict"
        if not called or not self._built_in("dict") or node.args or any(k.arg is None for k in node.keywords):
            return None
        return [(ast.copy_location(ast.Constant(k.arg), k), k.value) for k in node.keywords]

    def _collects(self, node: ast.Call) -> type[ast.Tuple] | type[ast.List] | None:
        """What `tuple(…)` or `list(…)` of one argument makes; None for other calls."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        plain = name in _COLLECTIONS and self._built_in(name) and len(node.args) == 1 and not node.keywords
        return _COLLECTIONS[name] if plain else None

    def _made_dict(self, items: list[tuple[ast.expr, ast.expr]], node: ast.expr) -> ast.expr:
        values = [self._picks(value) for _, value in items]
        made = ast.copy_location(ast.Dict([key for key, _ in items], values), node)
        return self._sized(made, values)

    def _made(self, items: list[ast.expr], like: ast.Tuple | ast.List) -> ast.expr:
        return self._sized(ast.copy_location(type(like)(items, ast.Load()), like), items)

    def _sized(self, made: ast.expr, items: list[ast.expr]) -> ast.expr:
        self._sizes[made] = 1 + sum(self._sizes.get(item, 1) for item in items)
        if self._sizes[made] > _MOST:
            raise _ComputesError
        return made

    def _bind(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._bound[target.id] = value
            return
        plain = isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)
        if not plain or len(target.elts) != len(value.elts):
            raise _ComputesError
        for one, its in zip(target.elts, value.elts, strict=True):
            self._bind(one, its)


class _ComputesError(Exception):
    """`replacement_args` does something else than to pick."""


def is_plain_key(node: ast.expr | None) -> bool:
    """Whether an expression is a text or a whole number that is written out."""
    return isinstance(node, ast.Constant) and type(node.value) in (str, int)


def literals(tree: ast.Module, bound: Mapping[str, int]) -> dict[str, ast.expr]:
    """Variables of a module that are a literal, and nothing else: a number, a text, a tuple of such. `bound` says how
    often each name is bound anywhere in the module; a parameter of a function is no other value of the variable."""
    found: dict[str, ast.expr] = {}
    parameters = Counter(node.arg for node in ast.walk(tree) if isinstance(node, ast.arg))
    for statement in tree.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target = statement.target
        if (
            isinstance(target, ast.Name)
            and _is_literal(statement.value)
            and bound[target.id] - parameters[target.id] == 1
        ):
            found[target.id] = statement.value
    return found


def _is_literal(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return len(node.elts) <= _MOST and all(map(_is_literal, node.elts))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and not isinstance(node.value, bytes | complex)

"""`__eq__` and `__hash__` of a class of the pass, as far as they compare fields with those of its own instances.

Python and libraries call them where no call is written. So their form is fixed: they are true or false, and of their
own class alone, whatever they are compared with.
"""

import ast

EQUALITY = "an __eq__(self, other) compares fields: `return isinstance(other, CLASS) and self.a == other.a`"
HASH = "a __hash__(self) is of fields: `return hash((self.a, self.b))`"


def write_hashes(tree: ast.Module) -> None:
    """`return hash(E)` as `return E` in methods `__hash__`, in place: which number it is nobody sees. Call it where no
    name of the module is `hash`."""
    for own in tree.body:
        for method in own.body if isinstance(own, ast.ClassDef) else ():
            last = method.body[-1] if isinstance(method, ast.FunctionDef) and method.name == "__hash__" else None
            call = last.value if isinstance(last, ast.Return) else None
            match call:
                case ast.Call(func=ast.Name(id="hash"), args=[given], keywords=[]):
                    last.value = given
                    last.__dict__.pop("_children", None)


def fault(method: ast.FunctionDef, own: ast.ClassDef) -> str:
    """What is wrong with such a method of a class; "" if nothing is."""
    order = [a.arg for a in method.args.args]
    plain = not (method.args.posonlyargs or method.args.kwonlyargs or method.args.vararg or method.args.kwarg)
    plain = plain and not method.args.defaults and not method.decorator_list
    body = [s for s in method.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if method.name == "__hash__":
        held = len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None
        return "" if plain and held and len(order) == 1 and _is_of_fields(body[0].value, order) else HASH
    return "" if plain and len(order) == 2 and _compares(body, order, own.name) else EQUALITY


def _compares(body: list[ast.stmt], order: list[str], own: str) -> bool:
    """Whether statements are `if not isinstance(other, OWN): return False` and a return, or the return alone."""
    if not body or not isinstance(body[-1], ast.Return) or body[-1].value is None:
        return False
    value, guarded = body[-1].value, False
    for statement in body[:-1]:
        left = statement.body if isinstance(statement, ast.If) and not statement.orelse else []
        if len(left) != 1 or not isinstance(left[0], ast.Return) or not _is_answer(left[0].value):
            return False
        test = statement.test
        operand = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
        if (operand is not None and _is_guard(operand, order, own)) or _is_guard(test, order, own, ast.IsNot):
            if isinstance(left[0].value, ast.Constant) and left[0].value.value:
                return False
            guarded = True
        elif not _is_same(test, order) and not (guarded and _is_true_or_false(test, order, own)):
            return False
    if isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And):
        guarded |= _is_guard(value.values[0], order, own)
    return guarded and _is_true_or_false(value, order, own)


def _is_answer(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Name):
        return node.id == "NotImplemented"
    return isinstance(node, ast.Constant) and type(node.value) is bool


def _is_same(node: ast.expr, order: list[str]) -> bool:
    """`self is other`."""
    sides = (node.left, *node.comparators) if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is) else ()
    return len(sides) == 2 and all(isinstance(side, ast.Name) and side.id in order for side in sides)


def _is_guard(node: ast.expr, order: list[str], own: str, op: type[ast.cmpop] = ast.Is) -> bool:
    """`isinstance(other, OWN)`, or `type(other) is OWN`."""
    if isinstance(node, ast.Compare):
        right = node.comparators[0]
        named = isinstance(right, ast.Name) and right.id == own
        return len(node.ops) == 1 and isinstance(node.ops[0], op) and named and _is_type_of(node.left, order[1])
    match node:
        case ast.Call(func=ast.Name(id="isinstance"), args=[ast.Name(id=first), ast.Name(id=second)], keywords=[]):
            return op is ast.Is and first == order[1] and second == own
    return False


def _is_type_of(node: ast.expr, name: str) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="type"), args=[ast.Name(id=found)], keywords=[]):
            return found == name
    return False


def _is_true_or_false(node: ast.expr, order: list[str], own: str) -> bool:
    if isinstance(node, ast.BoolOp):
        return all(_is_true_or_false(value, order, own) for value in node.values)
    if _is_answer(node) or _is_guard(node, order, own) or _is_same(node, order):
        return True
    equal = isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq)
    return equal and _is_of_fields(node.left, order) and _is_of_fields(node.comparators[0], order)


def _is_of_fields(node: ast.expr, order: list[str]) -> bool:
    """Whether an expression is fields of the instances, constants, and tuples of such."""
    if isinstance(node, ast.Tuple):
        return all(_is_of_fields(part, order) for part in node.elts)
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id in order
    return isinstance(node, ast.Constant)

"""The static policy on `pattern`, which is traced, and `replacement_args`, which picks."""

import ast

from passbench.policy import allowlists as names
from passbench.policy.modules import Module, Report
from passbench.policy.nodes import bound_by, children, walk
from passbench.policy.scopes import parameters
from storage.graph import targets
from storage.graph.targets import TargetError

_STATEMENTS = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr, ast.Pass)
_EXPRESSIONS = (
    ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Slice,
    ast.Tuple, ast.List, ast.Dict, ast.Starred, ast.keyword, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip


_ATTRIBUTES = targets.ATTRIBUTES | names.TENSOR_ATTRIBUTES | names.VIEW_ATTRIBUTES
"""A traced value also has what leads to its tracer and graph, and from there to everything."""


def check_pattern(module: Module, function: ast.FunctionDef, report: Report) -> None:
    """Report what in a pattern is not straight-line code of operations that a graph can hold."""
    if function.decorator_list:
        report.at("pattern", module, function, "pattern takes no decorator")
    local = _parameters(function)
    local |= {n.id for n in walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for name in local & module.imports.keys():
        report.at("rebinding", module, function, f"{name} is an import; give the value another name")
    for statement in function.body:
        if isinstance(statement, ast.Delete) and all(isinstance(t, ast.Name) for t in statement.targets):
            continue
        if not isinstance(statement, _STATEMENTS):
            advice = "write straight-line operations: assignments and a return"
            report.at("pattern", module, statement, f"a pattern is traced; {advice}")
            continue
        _check(module, statement, local, report)


def _check(module: Module, node: ast.AST, local: set[str], report: Report) -> None:
    for child in children(node):
        if isinstance(child, ast.Attribute) and not isinstance(child.ctx, ast.Load):
            report.at("attribute_assignment", module, child, "a pattern assigns to its own names only")
            continue
        if isinstance(child, ast.Attribute) and is_number(module, child):
            continue  # a limit of a type
        if isinstance(child, ast.Name) and child.id in module.literals and child.id not in local:
            continue
        dotted = module.dotted(child) if isinstance(child, ast.Attribute | ast.Name) else None
        if dotted is not None:
            if not _is_operation(dotted):
                message = f"{dotted} is no operation that a graph holds; a pattern may name those, dtypes and numbers"
                report.at("pattern", module, child, message)
            continue
        if not isinstance(child, (*_STATEMENTS, *_EXPRESSIONS)):
            message = f"{type(child).__name__} has no place in a pattern; write plain operations"
            report.at("pattern", module, child, message)
        elif isinstance(child, ast.Attribute) and child.attr not in _ATTRIBUTES | targets.methods():
            rule = "private_name" if child.attr.startswith("_") else "pattern"
            message = f"{child.attr} is no method or attribute of tensors that a graph holds; use those"
            report.at(rule, module, child, message)
        elif isinstance(child, ast.Name) and child.id not in local | names.PATTERN_BUILTINS:
            message = f"{child.id} is not a parameter of pattern, nor imported; a pattern uses its parameters"
            report.at("forbidden_name", module, child, message)
        _check(module, child, local, report)


def _is_operation(dotted: str) -> bool:
    if dotted in names.PATTERN_VALUES | names.CONSTANTS or dotted in targets.spellings():
        return True
    if dotted.startswith("torch.Tensor."):
        return dotted.removeprefix("torch.Tensor.") in targets.methods()
    try:
        return callable(targets.resolve(dotted))
    except TargetError:
        return False


def _parameters(function: ast.FunctionDef) -> set[str]:
    arguments = function.args
    return {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


def check_replacement_args(module: Module, function: ast.FunctionDef, report: Report) -> None:
    """`replacement_args` is a single return of parameters and literals, once it is written out (`forms`)."""
    advice = "write `return (…)` with parameters, numbers, strings and dtypes; compute in the kernel"
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if function.decorator_list or len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        report.at("replacement_args", module, function, f"replacement_args only picks; {advice}")
        return
    for value in _picked(body[0].value):
        if not is_picked(module, function, value):
            report.at("replacement_args", module, value, f"{ast.unparse(value)} is computed; {advice}")


def is_picked(module: Module, function: ast.FunctionDef, value: ast.expr) -> bool:
    """Whether `replacement_args` may hand on an item: a parameter, a literal, or a number made of numbers."""
    if isinstance(value, ast.Name) and value.id in _parameters(function):
        return True
    if isinstance(value, ast.JoinedStr):
        return all(isinstance(part, ast.Constant) for part in value.values)
    return isinstance(value, ast.Constant) or module.dotted(value) in names.PATTERN_VALUES or is_number(module, value)


def constant_of_class(module: Module, node: ast.Attribute) -> ast.expr | None:
    """The literal that `CLASS.NAME`, or `CLASS.NAME.value` of an enumeration, stands for; None if that is not sure."""
    of_member = node.attr == "value" and isinstance(node.value, ast.Attribute)
    field = node.value if of_member else node
    own = module.classes.get(field.value.id) if isinstance(field.value, ast.Name) else None
    if own is None or own.decorator_list or own.keywords:
        return None
    bases = {module.dotted(base) or ast.unparse(base) for base in own.bases}
    if bases - ({"enum.Enum", "enum.IntEnum", "enum.StrEnum", "str", "int"} if of_member else {"object"}):
        return None
    values = [s for s in own.body if isinstance(s, ast.Assign) and len(s.targets) == 1]
    named = [s.value for s in values if isinstance(s.targets[0], ast.Name) and s.targets[0].id == field.attr]
    bound = sum(field.attr == name for s in own.body for name in bound_by(s))
    found = named[0] if len(named) == 1 and bound == 1 else None
    return found if isinstance(found, ast.Constant) and isinstance(found.value, str | int | float) else None


def is_number(module: Module, node: ast.expr) -> bool:
    """Whether an expression is a number made of numbers alone: `-1`, `64**-0.5`, `float("-inf")`, `1 / math.sqrt(64)`,
    `torch.finfo(torch.float32).min`."""
    match node:
        case ast.Constant():
            return type(node.value) in (int, float)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
            return is_number(module, node.operand)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.FloorDiv() | ast.Pow()):
            return is_number(module, node.left) and is_number(module, node.right)
        case ast.Attribute(value=ast.Call(args=[given], keywords=[]), attr="min" | "max" | "eps" | "tiny"):
            limits = module.dotted(node.value.func) in ("torch.finfo", "torch.iinfo")
            return limits and module.dotted(given) in names.DTYPES
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str() | int() | float())], keywords=[]):
            return "float" not in module.names_bound and "float" not in module.declared_global
        case ast.Call(args=[given], keywords=[]):
            return module.dotted(node.func) == "math.sqrt" and is_number(module, given)
        case ast.Name() | ast.Attribute():
            return module.dotted(node) in names.CONSTANTS
    return False


def check_parameters(module: Module, report: Report) -> None:
    """Report parameters that the contract does not allow: `pattern` and `replacement_args` have the same plain ones,
    `replacement_func` has none."""
    given: dict[str, list[str]] = {}
    for name in ("pattern", "replacement_args"):
        function = module.functions.get(name)
        if function is None:
            continue
        given[name] = [a.arg for a in parameters(function)]
        plain, arguments = len(function.args.args), function.args
        if plain != len(given[name]) or arguments.defaults:
            message = f"parameters of {name} are plain: without defaults, *, / and **"
            report.at(name, module, function, message)
            return
    if len(given) == 2 and given["pattern"] != given["replacement_args"]:
        listed = ", ".join(given["pattern"])
        message = f"write `def replacement_args({listed})`: it has pattern's parameters, in pattern's order"
        report.at("replacement_args", module, module.functions["replacement_args"], message)
    function = module.functions.get("replacement_func")
    if function is not None and parameters(function):
        report.at("replacement_func", module, function, "replacement_func takes no arguments")


def _picked(value: ast.expr) -> list[ast.expr]:
    if isinstance(value, ast.Tuple | ast.List):
        return [item for element in value.elts for item in _picked(element)]
    return [value]

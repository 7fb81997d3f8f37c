"""The static policy on `pattern`, which is traced, and `replacement_args`, which picks."""

import ast
from collections.abc import Collection, Mapping

from passbench.policy import allowlists as names
from passbench.policy.forms.picked_arguments import is_plain_key
from passbench.policy.forms.unused_functions import HANDED_TO_PASSBENCH
from passbench.policy.modules import Module, Report
from passbench.policy.nodes import bound_by, children, quoted, walk, written_name
from passbench.policy.scopes import open_scope, parameters
from storage.graph import targets
from storage.graph.targets import TargetError

_STATEMENTS = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr, ast.Pass, ast.For, ast.If, ast.Break, ast.Continue,
)  # fmt: skip
_EXPRESSIONS = (
    ast.Constant, ast.Name, ast.Attribute, ast.Call, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Slice,
    ast.Tuple, ast.List, ast.Dict, ast.Starred, ast.keyword, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context,
    ast.IfExp, ast.BoolOp, ast.boolop,
)  # fmt: skip


_ATTRIBUTES = targets.ATTRIBUTES | names.TENSOR_ATTRIBUTES | names.VIEW_ATTRIBUTES | {"append"}
"""A traced value also has what leads to its tracer and graph, and from there to everything. `append` is a list's."""


class PatternChecker:
    """Checks patterns and the functions that they call, each once. What runs when a pattern is traced is of operations
    that a graph can hold, whatever branch is taken: nothing of it is followed, all of it is checked."""

    def __init__(self, modules: Mapping[str, Module], report: Report) -> None:
        self._modules, self._report = modules, report
        self._checked: set[ast.FunctionDef] = set()
        self._waiting: list[tuple[Module, ast.FunctionDef]] = []
        self._bound: dict[str, set[str]] = {}  # of each module, names at its top

    def check(self, module: Module, pattern: ast.FunctionDef) -> None:
        """Report what in a pattern, or in a function that it calls, is no operation that a graph can hold."""
        given = parameter_names(pattern)
        for node in walk(pattern):
            if isinstance(node, ast.If | ast.IfExp) and not given.isdisjoint(_tested(node.test)):
                message = "a pattern is traced: it knows no values; write one pattern for each case"
                self._report.at("pattern", module, node, message)
        self._waiting.append((module, pattern))
        while self._waiting:
            home, function = self._waiting.pop()
            if function not in self._checked:
                self._checked.add(function)
                self._check_function(home, function)

    def _check_function(self, module: Module, function: ast.FunctionDef) -> None:
        report = self._report
        if function.decorator_list:
            report.at("pattern", module, function, f"{function.name} takes no decorator: it is traced")
        given = function.args
        if not all(isinstance(d, ast.Constant | None) for d in (*given.defaults, *given.kw_defaults)):
            message = f"defaults of {function.name}, which a pattern calls, are constants: others are kept"
            report.at("pattern", module, function, message)
        local = {a.arg for a in parameters(function)}
        local |= {n.id for n in walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        for name in local & module.imports.keys():
            report.at("rebinding", module, function, f"{name} is an import; give the value another name")
        self._block(module, function.body, local)

    def _block(self, module: Module, body: list[ast.stmt], local: set[str]) -> None:
        for statement in body:
            if isinstance(statement, ast.Delete) and all(isinstance(t, ast.Name) for t in statement.targets):
                continue
            if not isinstance(statement, _STATEMENTS):
                advice = "write operations: assignments, a return, loops over constants, functions of such"
                self._report.at("pattern", module, statement, f"a pattern is traced; {advice}")
            elif isinstance(statement, ast.For | ast.If):
                heads = (statement.target, statement.iter) if isinstance(statement, ast.For) else (statement.test,)
                for head in heads:
                    _check(module, ast.Expr(head), local, self._report, self)
                self._block(module, statement.body, local)
                self._block(module, statement.orelse, local)
            else:
                _check(module, statement, local, self._report, self)

    def calls(self, module: Module, node: ast.expr, dotted: str | None) -> bool:
        """Whether an expression names a function of the pass, which is checked as a pattern is."""
        home, name = module, node.id if isinstance(node, ast.Name) else ""
        if dotted is not None:
            place = module.sibling_function(dotted)
            if place is None or place[0] not in self._modules:
                return False
            home, name = self._modules[place[0]], place[1]
        function = home.of_patterns.get(name) or home.functions.get(name)
        if function is None or name in HANDED_TO_PASSBENCH:
            return False
        self._waiting.append((home, function))
        return True

    def is_built_in(self, module: Module, name: str) -> bool:
        """Whether a name is a built-in that a pattern may use, which the module gives to nothing of its own."""
        if module.name not in self._bound:
            self._bound[module.name] = open_scope(module, module.tree, None).names | module.declared_global
        return name in names.PATTERN_BUILTINS - self._bound[module.name]


def _tested(node: ast.expr) -> set[str]:
    """Names whose values an expression needs: it is enough for `x is None` that there is one."""
    if isinstance(node, ast.Compare) and all(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
        return set()
    return {node.id} if isinstance(node, ast.Name) else set().union(*map(_tested, children(node)))


def _check(module: Module, node: ast.AST, local: set[str], report: Report, checker: PatternChecker) -> None:
    for child in children(node):
        if isinstance(child, ast.Attribute) and not isinstance(child.ctx, ast.Load):
            report.at("attribute_assignment", module, child, "a pattern assigns to its own names only")
            continue
        if isinstance(child, ast.Attribute) and is_number(module, child):
            continue  # a limit of a type
        if isinstance(child, ast.Name) and child.id in module.literals and child.id not in local:
            continue
        dotted = module.dotted(child) if isinstance(child, ast.Attribute | ast.Name) else None
        own = isinstance(child, ast.Name) and child.id in local
        if isinstance(child, ast.Attribute | ast.Name) and not own and checker.calls(module, child, dotted):
            continue
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
        elif isinstance(child, ast.Name) and not own and not checker.is_built_in(module, child.id):
            message = f"{child.id} is not a parameter of pattern, nor imported; a pattern uses its parameters"
            report.at("forbidden_name", module, child, message)
        _check(module, child, local, report, checker)


def _is_operation(dotted: str) -> bool:
    if dotted in names.PATTERN_VALUES | names.CONSTANTS or dotted in targets.spellings():
        return True
    if dotted.startswith("torch.Tensor."):
        return dotted.removeprefix("torch.Tensor.") in targets.methods()
    try:
        return callable(targets.resolve(dotted))
    except TargetError:
        return False


def parameter_names(function: ast.FunctionDef) -> set[str]:
    """Names of parameters, starred ones aside."""
    arguments = function.args
    return {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}


def check_replacement_args(module: Module, function: ast.FunctionDef, report: Report) -> None:
    """`replacement_args` is a single return of parameters and literals, once it is written out (`forms`)."""
    advice = "write `return (…)` with parameters, numbers, strings and dtypes; compute in the kernel"
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if function.decorator_list or len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        report.at("replacement_args", module, function, f"replacement_args only picks; {advice}")
        return
    if isinstance(body[0].value, ast.Dict):
        report.at("replacement_args", module, function, "replacement_args returns a tuple; put the dict into one")
    for key in (k for node in walk(body[0].value) if isinstance(node, ast.Dict) for k in node.keys):
        if isinstance(key, ast.Constant) and key.value in names.REFUSED_OPTIONS:
            rule, instead = names.REFUSED_OPTIONS[key.value]
            report.at(rule, module, key, f"{key.value}: {instead}")
    given = parameter_names(function)
    for value in _picked(body[0].value):
        if not is_picked(module, given, value):
            named = isinstance(value, ast.Attribute) and constant_of_class(module, ast.Attribute(value, "value"))
            instead = f"write {quoted(value)}.value" if named else advice
            report.at("replacement_args", module, value, f"{quoted(value)} is computed; {instead}")


def is_picked(module: Module, given: Collection[str], value: ast.expr) -> bool:
    """Whether `replacement_args` may hand on an item: one of its parameters, which are `given`, a literal, or a number
    made of numbers."""
    if isinstance(value, ast.Name) and value.id in given:
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
    bases = {module.dotted(base) or written_name(base) for base in own.bases}
    if bases - ({"enum.Enum", "enum.IntEnum", "enum.StrEnum", "str", "int"} if of_member else {"object"}):
        return None
    values = [s for s in own.body if isinstance(s, ast.Assign) and len(s.targets) == 1]
    named = [s.value for s in values if isinstance(s.targets[0], ast.Name) and s.targets[0].id == field.attr]
    bound = sum(field.attr == name for s in own.body for name in bound_by(s))
    found = named[0] if len(named) == 1 and bound == 1 else None
    if isinstance(found, ast.Name) and not any(found.id in bound_by(s) for s in own.body):
        found = module.literals.get(found.id)
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
    """The items that `replacement_args` hands on, one by one, those of tuples, lists and dicts within it too."""
    if isinstance(value, ast.Tuple | ast.List):
        return [item for element in value.elts for item in _picked(element)]
    if isinstance(value, ast.Dict) and all(is_plain_key(key) for key in value.keys):
        return [item for element in value.values for item in _picked(element)]
    return [value]

"""The static policy on `@triton.jit` functions: Triton's language, constants, and other kernels of the pass."""

import ast
import re
from collections.abc import Callable, Collection, Iterator, Sequence

from passbench.policy import allowlists as names
from passbench.policy.kernels.addresses import CONSTEXPR, Addresses
from passbench.policy.modules import Module, Report, is_builtin
from passbench.policy.nodes import children, quoted, walk, written_name
from passbench.policy.scopes import own_nodes, parameters
from passbench.policy.suggestions import USUAL_IMPORTS

_PARTS = (
    ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.If, ast.For, ast.While, ast.Return, ast.Pass, ast.Break,
    ast.Continue, ast.Assert, ast.BoolOp, ast.BinOp, ast.UnaryOp, ast.IfExp, ast.Compare, ast.Call, ast.Constant,
    ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice, ast.ListComp,
    ast.GeneratorExp, ast.JoinedStr, ast.FormattedValue,
)  # fmt: skip
"""Statements and expressions of a kernel. Triton's compiler does not know the others, or the policy does not follow
them. Triton's interpreter runs them all as Python does, and those of later Pythons, such as `type A = …`."""
_LIBRARIES = ("tl", "libdevice")


def check_device_function(
    module: Module,
    function: ast.FunctionDef,
    modules: dict[str, Module],
    addresses: Addresses,
    members: Collection[str],
    calls_kernels: Callable[[ast.FunctionDef, str], bool],
    report: Report,
) -> None:
    """Report names in a kernel that do not exist on the device, and addresses made of numbers or used as numbers.

    Allowed are `tl`, libdevice, the kernel's own names, and constants and kernels of the pass. `members` are names of
    fields and methods of the pass's classes; `calls_kernels` says of a name in a kernel whether each launch gives a
    kernel for it.
    """
    nodes = [n for statement in function.body for n in walk(statement)]
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local = stored | {a.arg for a in parameters(function)} | {n.arg for n in nodes if isinstance(n, ast.arg)}
    local |= {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
    for name in local & module.imports.keys():
        report.at("rebinding", module, function, f"{name} is an import; choose another name")
    for parameter in parameters(function):
        if parameter.annotation is not None and not _is_plain_type(module, parameter.annotation):
            message = f"{parameter.arg}: a kernel's parameter is a tl.constexpr, or has no annotation"
            report.at("annotation", module, parameter, message)
    _check_builtins(module, function, local, report)
    _check_text(module, function, report)
    waiting: list[ast.AST] = list(function.body)[::-1]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Call):
            chosen = isinstance(node.func, ast.Name) and calls_kernels(function, node.func.id)
            _check_called(module, node, local, modules, members, report, chosen)
        if _check(module, node, local, modules, report):
            waiting.extend(children(node)[::-1])
    addresses.check(module, function, report)


_NAMED_TYPES = frozenset("int float bool torch.Tensor tl.tensor triton.language.tensor".split())


def _is_plain_type(module: Module, node: ast.expr) -> bool:
    """Whether an annotation is `tl.constexpr`, or says nothing about addresses: Triton compiles a number whose
    annotation is "*fp32" as an address."""
    if isinstance(node, ast.Constant):
        return node.value in CONSTEXPR | _NAMED_TYPES
    text, dotted = written_name(node), module.dotted(node)
    if _base(node) in _LIBRARIES and _base(node) not in module.imports and _base(node) not in module.globals:
        return True  # Python stops at the name, and the kernel's body is told what to import
    if text in CONSTEXPR:
        return dotted == "triton.language.constexpr"
    return text in _NAMED_TYPES or dotted in names.HOST_VALUES | _NAMED_TYPES or dotted == "triton.language.constexpr"


_DEFINITION = re.compile(r"def +\w+ *\(")


def _indentation(lines: Sequence[str], function: ast.FunctionDef) -> int:
    """The spaces that Triton takes off each line of a kernel under `if` or `try`; 0 where it could take others off, or
    some within a text."""
    spaces = " " * function.col_offset
    texts = [n for n in walk(function) if isinstance(n, ast.Constant | ast.JoinedStr) and n.end_lineno != n.lineno]
    documented = {id(s.value) for s in function.body[:1] if isinstance(s, ast.Expr)}
    plain = all(line.startswith(spaces) or not line.strip() for line in lines)
    return len(spaces) if plain and all(id(text) in documented for text in texts) else 0


def _check_text(module: Module, function: ast.FunctionDef, report: Report) -> None:
    """Triton reads a kernel's text by itself: from a line on that looks like the beginning of a function, in a text
    constant too. It must find what Python has parsed."""
    first = min([function.lineno, *(d.lineno for d in function.decorator_list)])
    indent = _indentation(module.lines[first - 1 : function.end_lineno], function)
    for number in range(first, function.end_lineno + 1):
        line = module.lines[number - 1]
        if number == function.lineno:
            if not _DEFINITION.match(line[indent:]):
                report.at("kernel", module, function, "write `def NAME(` of a kernel at the beginning of one line")
        elif line.split()[:1] == ["def"]:
            message = "Triton takes a line that begins with `def` for the kernel's first; write it otherwise"
            report.add("kernel", module.file, number, message)


def _check_builtins(module: Module, function: ast.FunctionDef, local: set[str], report: Report) -> None:
    """A variable called like a built-in is bound at the top of the kernel before it is mentioned: until then Triton
    would find the built-in."""
    own = {a.arg for a in parameters(function)}
    left = {name for name in local - own - names.DEVICE_BUILTINS if is_builtin(name)}
    for statement in function.body:
        if not left:
            return
        bound: set[str] = set()
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            bound = {n.id for t in targets for n in walk(t) if isinstance(n, ast.Name)}
        elif isinstance(statement, ast.For):
            pass  # may run no time at all
        mentioned = {n.id for n in own_nodes(ast.Module([statement], [])) if isinstance(n, ast.Name)}
        loaded, stored = set(), set()
        for n in walk(statement):
            if isinstance(n, ast.Name):
                (loaded if isinstance(n.ctx, ast.Load) else stored).add(n.id)
        for name in sorted(left & (loaded | stored | mentioned)):
            early = name in loaded or (name in mentioned and name not in bound)
            if early or (name in stored and name not in bound):
                message = f"{name} is a built-in where it is not bound yet; choose another name"
                report.at("rebinding", module, statement, message)
        left -= bound | loaded


def _check(module: Module, node: ast.AST, local: set[str], modules: dict[str, Module], report: Report) -> bool:
    """Check one node; whether what is below it is to be looked at too."""
    if isinstance(node, ast.stmt | ast.expr) and not isinstance(node, _PARTS):
        report.at("kernel", module, node, f"{type(node).__name__} is no part of a Triton kernel")
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        message = f"{quoted(node)} may be a list of the host's; write to a name, or to memory by tl.store"
        report.at("kernel", module, node, message)
    if isinstance(node, ast.Attribute | ast.Name):
        dotted = module.dotted(node)
        if dotted is not None:
            _check_dotted(module, node, dotted, modules, report)
            return False
    if isinstance(node, ast.Attribute) and _base(node) in {*_LIBRARIES} - local - module.globals:
        report.once("forbidden_name", module, node, _unknown(_base(node)))
        return False
    if isinstance(node, ast.Attribute):
        if node.attr.startswith("_"):
            report.at("private_name", module, node, f"{node.attr} is private; use Triton's language")
        elif node.attr not in names.DEVICE_ATTRIBUTES:
            report.at("forbidden_attribute", module, node, f"{node.attr} is no attribute of Triton's tensors or types")
        if not isinstance(node.ctx, ast.Load):
            report.at("attribute_assignment", module, node, "a kernel assigns to its own names only")
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        bound = node.id in local  # unions of all names would take long where there are many
        if node.id in module.functions:
            message = f"{node.id} is host code; decorate it with @triton.jit to call it in a kernel"
            report.at("forbidden_name", module, node, message)
        elif not bound and node.id not in module.globals and node.id not in names.DEVICE_BUILTINS:
            report.at("forbidden_name", module, node, _unknown(node.id))
        elif not bound and is_builtin(node.id) and node.id not in names.DEVICE_BUILTINS:
            report.at("rebinding", module, node, f"{node.id} is a built-in; choose another name")
    return True


_COMBINING = {"reduce": (2, "combine_fn"), "associative_scan": (2, "combine_fn"), "map_elementwise": (0, "scalar_fn")}
"""Functions of Triton that call one of their arguments, with its place and name; a method's value is the first."""


_BY_KEY = frozenset(("min", "max"))
"""Built-ins that Triton's interpreter leaves to Python, which may be given a `key`."""


def _called(module: Module, call: ast.Call) -> Iterator[ast.expr]:
    """What Triton calls for a call in a kernel: its function, and an argument that this function calls."""
    yield call.func
    if not isinstance(call.func, ast.Attribute | ast.Name):
        return
    dotted = module.dotted(call.func)
    if isinstance(call.func, ast.Name) and dotted is None and call.func.id in _BY_KEY:
        yield from (k.value for k in call.keywords)
    if isinstance(call.func, ast.Name) and call.func.id == "print":  # which calls `write` of its file
        yield from (k.value for k in call.keywords if k.arg in ("file", None))
    name = call.func.attr if isinstance(call.func, ast.Attribute) else (dotted or "").rpartition(".")[2]
    if name in _COMBINING:
        place, keyword = _COMBINING[name]
        place -= dotted is None
        yield from call.args[place:][:1]
        yield from (a for a in call.args[:place] if isinstance(a, ast.Starred))  # which may hold it
        yield from (k.value for k in call.keywords if k.arg in (keyword, None))


def _check_called(
    module: Module,
    call: ast.Call,
    local: set[str],
    modules: dict[str, Module],
    members: Collection[str],
    report: Report,
    chosen: bool,
) -> None:
    """Report a call of what may be host code: Triton calls any function while it compiles, and its interpreter does.
    `chosen`: what is called is a kernel that the launch gives."""
    for function in _called(module, call):
        if chosen and function is call.func:
            continue
        dotted = module.dotted(function)
        if dotted is not None:
            place = module.sibling_function(dotted)
            known = place is None or place[0] not in modules or place[1] in modules[place[0]].kernels
        elif isinstance(function, ast.Name):
            known = function.id not in local and (function.id in module.kernels or function.id not in module.globals)
        else:
            known = isinstance(function, ast.Attribute) and function.attr not in members and function.attr != "value"
        if not known:
            written = quoted(function)
            message = f"{written} may be host code; name a kernel, or a function of tl, where it is called, and choose"
            message += " by a tl.constexpr: if KIND == 0: …"
            report.at("kernel", module, call, message)


def _base(node: ast.expr) -> str:
    """The name that an attribute chain starts at; "" if it starts at none."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _unknown(name: str) -> str:
    if name in _LIBRARIES:
        return f"{name} is not imported; write `{USUAL_IMPORTS[name]}` at the top"
    if is_builtin(name):
        return f"the built-in {name} does not exist in a kernel; use tl and constants"
    return f"{name} is not a parameter, a variable or a tl.constexpr of the module"


def _check_dotted(module: Module, node: ast.expr, dotted: str, modules: dict[str, Module], report: Report) -> None:
    if module.is_private(dotted):
        report.at("private_name", module, node, f"{dotted} is private; use Triton's public language")
        return
    sibling = module.sibling_function(dotted)
    if sibling is not None:
        other = modules.get(sibling[0])
        if other is not None and sibling[1] in other.functions:
            report.at("forbidden_name", module, node, f"{dotted} is host code; decorate it with @triton.jit")
        return
    known, attributes = dotted, []
    while known not in names.DEVICE_NAMES and "." in known:
        known, _, attribute = known.rpartition(".")
        attributes.append(attribute)
    if known not in names.DEVICE_NAMES or not names.DEVICE_ATTRIBUTES.issuperset(attributes):
        report.at("forbidden_name", module, node, f"{dotted} is not for kernels; use functions of tl or libdevice")

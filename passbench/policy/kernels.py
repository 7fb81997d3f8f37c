"""The static policy on `@triton.jit` functions: Triton's language, constants, and other kernels of the pass."""

import ast

from passbench.policy import allowlists as names
from passbench.policy.modules import Module, Report, is_builtin
from passbench.policy.scopes import parameters

_BANNED = (
    ast.Import, ast.ImportFrom, ast.ClassDef, ast.Try, ast.TryStar, ast.Global, ast.Nonlocal, ast.Lambda, ast.Delete,
    ast.AsyncFunctionDef, ast.Await, ast.Yield, ast.YieldFrom, ast.Raise,
)  # fmt: skip


def check_device_function(
    module: Module, function: ast.FunctionDef, modules: dict[str, Module], report: Report
) -> None:
    """What a kernel names exists on the device: `tl`, libdevice, its own names, constants and kernels of the pass."""
    local = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    local |= {n.arg for n in ast.walk(function) if isinstance(n, ast.arg)}
    local |= {n.name for n in ast.walk(function) if isinstance(n, ast.FunctionDef)}
    for name in local & module.imports.keys():
        report.at("rebinding", module, function, f"{name} is an import; choose another name")
    own = {a.arg for a in parameters(function)}
    for name in local - own - names.DEVICE_BUILTINS:
        if is_builtin(name):  # where it is not assigned, it is the built-in
            report.at("rebinding", module, function, f"{name} is a built-in; choose another name")
    for statement in function.body:
        _check(module, statement, local, modules, report)


def _check(module: Module, node: ast.AST, local: set[str], modules: dict[str, Module], report: Report) -> None:
    if isinstance(node, _BANNED):
        report.at("kernel", module, node, f"{type(node).__name__} is no part of a Triton kernel")
    if isinstance(node, ast.Attribute | ast.Name):
        dotted = module.dotted(node)
        if dotted is not None:
            _check_dotted(module, node, dotted, modules, report)
            return
    if isinstance(node, ast.Attribute):
        if node.attr.startswith("_"):
            report.at("private_name", module, node, f"{node.attr} is private; use Triton's language")
        elif node.attr not in names.DEVICE_ATTRIBUTES:
            report.at("forbidden_attribute", module, node, f"{node.attr} is no attribute of Triton's tensors or types")
        if not isinstance(node.ctx, ast.Load):
            report.at("attribute_assignment", module, node, "a kernel assigns to its own names only")
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        known = local | module.globals | names.DEVICE_BUILTINS
        if node.id not in known or node.id in module.functions:
            report.at("forbidden_name", module, node, f"{node.id} does not exist in a kernel; use tl and constants")
    for child in ast.iter_child_nodes(node):
        _check(module, child, local, modules, report)


def _check_dotted(module: Module, node: ast.expr, dotted: str, modules: dict[str, Module], report: Report) -> None:
    if any(part.startswith("_") for part in dotted.split(".")):
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
        report.at("forbidden_name", module, node, f"{dotted} does not exist in a kernel; use tl or libdevice")
